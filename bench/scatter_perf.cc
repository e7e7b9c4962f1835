// scatter_perf: time and correctness of gyreScatter, with the options and the table of
// nccl-tests. This file says what a scatter is; bench/runner does the rest.
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
  return {.send = all, .recv = own, .param = own, .recv_in_place_offset = own};
}

std::uint64_t input(const Shape& shape, const BufferExtent& extent, int rank) {
  return rank == shape.root ? extent.send : 0;
}

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int rank) {
  return {{.count = extent.recv,
           .source_rank = shape.root,
           .input_first = static_cast<std::uint64_t>(rank) * extent.recv}};
}

gyreResult_t call(const CallArguments& call) {
  return gyreScatter(call.send, call.recv, call.count, call.type, call.root, call.comm,
                     call.stream);
}

constexpr CollectiveBenchmark scatter = {
    .program = "scatter_perf",
    .name = "Scatter",
    .calls = "gyreScatter",
    .rooted = true,
    .extent = extent,
    .bus_factor = gyre::bench::without_own_share,
    .input = input,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(scatter, argc, argv); }
