// Ranks whose messages go over rdma, by fake devices: the connections between them, and buffers
// that they lend or do not lend.
#pragma once

#include "lib/call/binding.h"
#include "lib/call/request.h"
#include "tests/support/exec/launch_job.h"
#include "tests/support/transports/rdma_pair.h"

#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace gyre::tests {

// A process for each rank.
class RdmaRanks {
 public:
  RdmaRanks(int ranks, const transport::FifoShape& shape) : shape_(shape) {
    for (int rank = 0; rank < ranks; ++rank) sides_.push_back(std::make_unique<Side>(Kind::rdma));
  }
  Side& side(int rank) { return *sides_[static_cast<std::size_t>(rank)]; }
  Connector connector() {
    return [this](int from, int to, int channel, transport::Direction direction) {
      auto& ends = open_[{from, to, channel}];
      if (ends.first == nullptr && ends.second == nullptr) {
        Link link = open_link(side(to), side(from), shape_);
        INFO(link.status.message());
        REQUIRE(link.status.ok());
        ends = {std::move(link.sender), std::move(link.receiver)};
      }
      return direction == transport::Direction::send ? std::move(ends.first)
                                                     : std::move(ends.second);
    };
  }

 private:
  using Ends =
      std::pair<std::unique_ptr<transport::Connection>, std::unique_ptr<transport::Connection>>;
  const transport::FifoShape shape_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::map<std::tuple<int, int, int>, Ends> open_;  // those that nobody has taken
};

// A rank's buffer; lent, it is memory of gyreMemAlloc.
class RankBuffer {
 public:
  RankBuffer(Side& side, std::uint64_t bytes, bool is_lent) : side_(side) {
    if (!is_lent) {
      plain_.resize(bytes);
      return;
    }
    const auto memory = side.regions.allocate(bytes);
    REQUIRE(memory.ok());
    region_ = static_cast<std::byte*>(*memory);
  }
  ~RankBuffer() {
    if (region_ != nullptr) (void)side_.regions.release(region_);
  }
  RankBuffer(const RankBuffer&) = delete;
  RankBuffer& operator=(const RankBuffer&) = delete;
  std::byte* data() { return region_ != nullptr ? region_ : plain_.data(); }

 private:
  Side& side_;
  std::vector<std::byte> plain_;
  std::byte* region_ = nullptr;
};

// A collective of int32 elements; root is rank 0.
struct RdmaCall {
  plan::Collective collective = plan::Collective::all_gather;
  std::size_t count = 0;  // of a block
  bool in_place = false;
  plan::Protocol protocol = plan::Protocol::direct;
  std::uint64_t piece_bytes = 0;
};

// It on all ranks, each with buffers of its own, lent by the bits of `lent_inputs` and
// `lent_outputs`.
class RdmaCalls {
 public:
  RdmaCalls(RdmaRanks& ranks, Job& job, const RdmaCall& what, unsigned lent_inputs = ~0U,
            unsigned lent_outputs = ~0U) {
    requests_.resize(static_cast<std::size_t>(job.size()));
    calls_.resize(requests_.size());
    for (int rank = 0; rank < job.size(); ++rank)
      add(ranks.side(rank), job.plan(rank), what, (lent_inputs >> rank & 1) != 0,
          (lent_outputs >> rank & 1) != 0);
  }

  std::vector<exec::Call>& calls() { return calls_; }
  exec::Call& call(int rank) { return calls_[static_cast<std::size_t>(rank)]; }
  // Another one after it, on the same buffers.
  void next() {
    for (exec::Call& call : calls_) ++call.sequence;
  }
  // What the call promises, of all ranks.
  std::vector<std::byte> results() const {
    std::vector<std::byte> all;
    for (const exec::Call& call : calls_)
      if (call.output != nullptr)
        all.insert(all.end(), call.output, call.output + call.output_bytes);
    return all;
  }

 private:
  void add(Side& side, const plan::Plan& plan, const RdmaCall& what, bool lends_input,
           bool lends_output) {
    const int rank = plan.rank();
    const bool is_root = rank == 0;
    comm::Request& request = requests_[static_cast<std::size_t>(rank)];
    request.collective = what.collective;
    request.count = what.count;
    request.type = ElementType::int32;
    request.in_place = what.in_place;
    const comm::BlockCounts blocks =
        comm::block_counts(what.collective, plan.rank_count(), is_root);
    const std::uint64_t block = request.block_bytes();
    const std::uint64_t input_bytes = blocks.input * block, output_bytes = blocks.output * block;
    const auto buffer = [&](std::uint64_t bytes, bool is_lent) {
      return buffers_.emplace_back(std::make_unique<RankBuffer>(side, bytes, is_lent))->data();
    };
    std::byte *input = nullptr, *output = nullptr;
    if (what.in_place && input_bytes > 0 && output_bytes > 0) {
      input = output = buffer(std::max(input_bytes, output_bytes), lends_output);
      const auto own = static_cast<std::uint64_t>(rank) * block;
      if (output_bytes > input_bytes) input += own;
      if (input_bytes > output_bytes) output += own;
    } else {
      if (input_bytes > 0) input = buffer(input_bytes, lends_input);
      if (output_bytes > 0) output = buffer(output_bytes, lends_output);
    }
    for (std::uint64_t i = 0; i < input_bytes / 4; ++i) {
      const auto value = static_cast<std::int32_t>(rank * 1'000'003 + static_cast<int>(i) * 7);
      std::memcpy(input + 4 * i, &value, 4);
    }
    request.input = input;
    request.output = output;
    bind(plan, what, request);
  }

  void bind(const plan::Plan& plan, const RdmaCall& what, const comm::Request& request) {
    comm::Binding& binding = *bindings_.emplace_back(std::make_unique<comm::Binding>());
    binding.bind(request, plan, what.piece_bytes);
    exec::Call& bound = call(plan.rank());
    bound.geometry = binding.geometry();
    bound.input = request.input;
    bound.output = request.output;
    bound.input_bytes = binding.input_bytes();
    bound.output_bytes = binding.output_bytes();
    bound.scratch = scratch_
                        .emplace_back(std::make_unique<std::vector<std::byte>>(
                            plan.scratch_chunks() * binding.geometry().piece_bytes))
                        ->data();
    bound.type = request.type;
    bound.protocol = what.protocol;
    bound.in_place = request.in_place;
    bound.pairs = what.collective == plan::Collective::all_to_all;
    bound.rank = static_cast<std::uint32_t>(plan.rank());
    bound.sequence = 1;
    bound.signature = comm::signature_of(request);
  }

  std::vector<comm::Request> requests_;
  std::vector<std::unique_ptr<RankBuffer>> buffers_;
  std::vector<std::unique_ptr<comm::Binding>> bindings_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> scratch_;
  std::vector<exec::Call> calls_;
};

}  // namespace gyre::tests
