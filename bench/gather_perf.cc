// gather_perf: time and correctness of gyreGather, with the options and the table of
// nccl-tests. This file says what a gather is; bench/runner does the rest.
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
  return {.send = own, .recv = all, .param = own, .send_in_place_offset = own};
}

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int rank) {
  if (rank != shape.root) return {};
  return gyre::bench::gathered(shape.ranks, extent.param);
}

gyreResult_t call(const CallArguments& call) {
  return gyreGather(call.send, call.recv, call.count, call.type, call.root, call.comm, call.stream);
}

constexpr CollectiveBenchmark gather = {
    .program = "gather_perf",
    .name = "Gather",
    .calls = "gyreGather",
    .rooted = true,
    .extent = extent,
    .bus_factor = gyre::bench::without_own_share,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(gather, argc, argv); }
