// All ranks of one collective on the kernels of kernels/cuda, on the host's machine, and the same
// call on the host's interpreter, whose bits the kernels must give.
#pragma once

#include "kernels/cuda/table.h"
#include "lib/plan/algorithms.h"
#include "tests/support/host_device.h"
#include "tests/support/relay_mesh.h"
#include "tests/support/uneven_blocks.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
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
  bool relayed = false;    // simple, not direct: no GPU reaches another
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

class DeviceJob {
 public:
  explicit DeviceJob(const DeviceCase& one);
  ~DeviceJob();

  // One call of all ranks; calls follow one another on the same rings. Empty, or what went wrong.
  std::string run(const MachineOptions& options);

  // For tests that disturb a call. Valid until the next one.
  std::vector<cuda::DeviceLaunch>& launches() { return launches_; }
  void begin();
  std::vector<Grid> grids();
  std::string compare();
  const cuda::DeviceStatus& status(int rank) const { return statuses_[std::size_t(rank)]; }
  const cuda::DeviceProgress& progress(int rank) const { return progress_[std::size_t(rank)]; }
  // Beside the ranks, as one more `rank`: tells them to abort after so many turns of theirs.
  Grid aborter(int rank, int turns);

 private:
  struct Ring;
  struct Side {
    std::vector<std::byte> memory;
    std::byte* begin = nullptr;
  };
  struct RankMemory {
    Side input, output;
    std::vector<std::byte> scratch;
  };

  plan::PlanRequest request() const;
  void wire();
  Ring& ring(int from, int to, int link_channel, std::uint32_t channel);
  MulticastGroup group_of(Side RankMemory::*side, std::uint64_t bytes);
  RankMemory make_memory(std::size_t rank) const;
  plan::Geometry geometry(std::size_t rank, std::uint32_t channel) const;
  void lay_out();
  void check_input(std::size_t rank);
  void launch_all(std::size_t rank, cuda::Kernel kernel);
  cuda::DeviceLaunch launch_of(std::size_t rank, const RankMemory& memory);
  void chain(std::size_t rank);
  void run_on_host(std::vector<RankMemory>& memory);

  const DeviceCase case_;
  std::vector<plan::Plan> plans_;
  std::uint64_t element_ = 1, block_bytes_ = 0, stripe_bytes_ = 0;
  std::uint64_t message_bytes_ = 0, slot_bytes_ = 0;
  std::uint32_t ring_shift_ = 1;
  std::vector<std::uint64_t> input_bytes_, output_bytes_;
  UnevenBlocks blocks_;
  std::vector<std::vector<plan::Geometry>> geometries_;  // by rank and channel
  std::uint64_t calls_ = 0;
  std::vector<RankMemory> memory_, earlier_;  // kept, so that each call has other addresses
  std::vector<RankMemory> second_;            // of the second call of a chain
  std::deque<std::vector<cuda::DeviceTask>> tasks_;
  std::deque<std::vector<std::byte>> group_addresses_;
  std::vector<MulticastGroup> groups_;
  std::string input_wrong_;
  std::map<std::tuple<int, int, int, std::uint32_t>, std::unique_ptr<Ring>> rings_;
  std::unique_ptr<RelayMesh> relays_;
  std::size_t grids_ended_ = 0;
  std::deque<std::vector<cuda::DeviceEnd>> ends_;  // lanes point into them
  std::vector<std::vector<cuda::DeviceLane>> lanes_;
  std::vector<cuda::DeviceLaunch> launches_;
  std::vector<cuda::DeviceStatus> statuses_;
  std::vector<std::uint64_t> sequences_;
  std::vector<std::uint32_t> starts_;
  std::vector<cuda::DeviceProgress> progress_;
  std::vector<std::uint32_t> ended_;
  std::vector<std::uint32_t> threads_ended_;  // of all launches so far
  std::uint32_t abort_ = 0;
};

}  // namespace gyre::tests
