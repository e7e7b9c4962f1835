// alltoall_perf: time and correctness of gyreAlltoAll, with the options and the table of
// nccl-tests. This file says what an all-to-all is; bench/runner does the rest.
#include "bench/runner/collective.h"

namespace {

using gyre::bench::BufferExtent;
using gyre::bench::CallArguments;
using gyre::bench::CollectiveBenchmark;
using gyre::bench::ExpectedBlock;
using gyre::bench::Shape;

BufferExtent extent(const Shape& shape) {
  const std::uint64_t own = gyre::bench::equal_share(shape);
  const std::uint64_t all = own * static_cast<std::uint64_t>(shape.ranks);
  return {.send = all, .recv = all, .param = own};
}

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int rank) {
  std::vector<ExpectedBlock> blocks = gyre::bench::gathered(shape.ranks, extent.param);
  for (ExpectedBlock& block : blocks)
    block.input_first = static_cast<std::uint64_t>(rank) * extent.param;
  return blocks;
}

gyreResult_t call(const CallArguments& call) {
  return gyreAlltoAll(call.send, call.recv, call.count, call.type, call.comm, call.stream);
}

constexpr CollectiveBenchmark all_to_all = {
    .program = "alltoall_perf",
    .name = "AlltoAll",
    .calls = "gyreAlltoAll",
    .in_place = false,
    .extent = extent,
    .bus_factor = gyre::bench::without_own_share,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(all_to_all, argc, argv); }
