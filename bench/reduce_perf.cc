// reduce_perf: time and correctness of gyreReduce, with the options and the table of
// nccl-tests. This file says what a reduce is; bench/runner does the rest.
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

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int rank) {
  if (rank != shape.root) return {};
  return {{.count = extent.recv, .source_rank = ExpectedBlock::reduced}};
}

gyreResult_t call(const CallArguments& call) {
  return gyreReduce(call.send, call.recv, call.count, call.type, call.op, call.root, call.comm,
                    call.stream);
}

constexpr CollectiveBenchmark reduce = {
    .program = "reduce_perf",
    .name = "Reduce",
    .calls = "gyreReduce",
    .reduces = true,
    .rooted = true,
    .extent = extent,
    .bus_factor = gyre::bench::whole_size,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(reduce, argc, argv); }
