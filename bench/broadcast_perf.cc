// broadcast_perf: time and correctness of gyreBroadcast, with the options and the table of
// nccl-tests. This file says what a broadcast is; bench/runner does the rest.
#include "bench/runner/collective.h"

namespace {

using gyre::bench::BufferExtent;
using gyre::bench::CallArguments;
using gyre::bench::CollectiveBenchmark;
using gyre::bench::ExpectedBlock;
using gyre::bench::Shape;

BufferExtent extent(const Shape& shape) {
  return {.send = shape.count, .recv = shape.count, .param = shape.count};
}

std::uint64_t input(const Shape& shape, const BufferExtent& extent, int rank) {
  return rank == shape.root ? extent.send : 0;
}

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int /*rank*/) {
  return {{.count = extent.recv, .source_rank = shape.root}};
}

gyreResult_t call(const CallArguments& call) {
  return gyreBroadcast(call.send, call.recv, call.count, call.type, call.root, call.comm,
                       call.stream);
}

constexpr CollectiveBenchmark broadcast = {
    .program = "broadcast_perf",
    .name = "Broadcast",
    .calls = "gyreBroadcast",
    .rooted = true,
    .extent = extent,
    .bus_factor = gyre::bench::whole_size,
    .input = input,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(broadcast, argc, argv); }
