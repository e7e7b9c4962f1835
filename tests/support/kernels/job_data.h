// One collective of all ranks as kernels get it, independent of where the kernels run: its plans,
// the stripes of its channels, its buffers, and the results of the host's interpreter, whose bits
// the kernels must give.
#pragma once

#include "kernels/cuda/table.h"
#include "lib/plan/algorithms.h"
#include "tests/support/kernels/uneven_blocks.h"

#include <string>
#include <string_view>
#include <vector>

namespace gyre::tests {

struct DeviceCase {
  std::string_view algorithm = "ring";
  plan::Collective collective = plan::Collective::all_reduce;
  int ranks = 2;
  int root = 0;
  int hosts = 1;  // that the ranks are spread over, as far as the plan cares
  std::uint32_t channels = 1;
  cuda::DeviceProtocol protocol = cuda::DeviceProtocol::simple;
  bool direct = false;
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 100;  // elements of all data, or of a block
  std::uint64_t shift = 0;    // bytes by which buffers are misaligned
  bool in_place = false;
  bool relayed = false;  // simple, not direct: no GPU reaches another
  // That ranks are spread over by turns: over links between them, what is lent lies in regions.
  int processes = 1;
  bool multicast = false;  // a group has the buffers of all ranks
  std::uint32_t threads = 64;
  std::uint64_t piece_bytes = 256;
  bool uneven = false;  // a v-function: blocks have up to `count` elements, see UnevenBlocks
  bool zero_signature = false;  // of all calls, so that flags are numbers alone
  bool chained = false;         // one launch carries out two calls, of other buffers each
  // Launches of one call, one after another without the host: as a graph is replayed. In place, the
  // second one would sum sums.
  int launches() const { return in_place || chained ? 1 : 2; }

  std::string shown() const;
};

std::byte* aligned(std::vector<std::byte>& memory, std::size_t bytes);
// Which links a lane ever sends on, and receives from.
void find_uses(const plan::Lane& lane, std::uint32_t chunks, std::vector<bool>& sends,
               std::vector<bool>& receives);

// Of one rank in one call. What lies before and behind a buffer must stay as it is.
struct RankMemory {
  static constexpr std::size_t guard_bytes = 64;
  struct Side {
    std::vector<std::byte> memory;
    std::byte* origin = nullptr;  // of the guard before it, aligned
    std::byte* begin = nullptr;
    std::uint64_t whole_bytes = 0;  // from the origin
  };
  Side input, output;  // in place the input has no memory of its own
  std::vector<std::byte> scratch;
  cuda::DevicePlace input_place, output_place;  // for peers in other processes
};

class JobData {
 public:
  explicit JobData(const DeviceCase& one);
  JobData(const JobData&) = delete;
  JobData& operator=(const JobData&) = delete;

  const DeviceCase& of() const { return case_; }
  std::size_t ranks() const { return plans_.size(); }
  const plan::Plan& plan(std::size_t rank) const { return plans_[rank]; }
  std::uint32_t blocks(std::size_t rank) const {
    return case_.channels * plans_[rank].lane_count();
  }
  const plan::Geometry& geometry(std::size_t rank, std::uint32_t channel) const {
    return geometries_[rank][channel];
  }
  std::uint64_t input_bytes(std::size_t rank) const { return input_bytes_[rank]; }
  std::uint64_t output_bytes(std::size_t rank) const { return output_bytes_[rank]; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  std::uint32_t ring_shift() const { return ring_shift_; }
  std::uint64_t ring_bytes() const;
  std::uint64_t scratch_bytes(std::size_t rank) const;  // of one channel

  // As it is before the call of that number.
  RankMemory make_memory(std::size_t rank, std::uint64_t call) const;
  // All that is no pointer, and that is not the channels' stripes.
  void fill(cuda::LaneCall& launch, std::size_t rank, std::uint64_t call) const;
  // What differs in the outputs, by rank, from what the host gives; empty if nothing.
  std::string wrong(const std::vector<const RankMemory*>& got, std::uint64_t call) const;

 private:
  plan::PlanRequest request() const;
  void lay_out();
  plan::Geometry even_geometry(std::size_t rank, std::uint32_t channel) const;
  void run_on_host(std::vector<RankMemory>& memory, std::uint64_t call) const;

  const DeviceCase case_;
  std::vector<plan::Plan> plans_;
  std::uint64_t element_ = 1, block_bytes_ = 0, stripe_bytes_ = 0;
  std::uint64_t message_bytes_ = 0, slot_bytes_ = 0;
  std::uint32_t ring_shift_ = 1;
  std::vector<std::uint64_t> input_bytes_, output_bytes_;
  UnevenBlocks blocks_;
  std::vector<std::vector<plan::Geometry>> geometries_;  // by rank and channel
};

}  // namespace gyre::tests
