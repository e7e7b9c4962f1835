// all_reduce_perf: time and correctness of gyreAllReduce, with the options and the table of
// nccl-tests. This file says what an all-reduce is; bench/runner does the rest.
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

// Each rank must send and receive 2 (n - 1) / n of the data, whatever the algorithm
// (P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009).
double bus_factor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

std::vector<ExpectedBlock> expected(const Shape& /*shape*/, const BufferExtent& extent,
                                    int /*rank*/) {
  return {{.output_first = 0, .count = extent.recv, .source_rank = ExpectedBlock::reduced}};
}

gyreResult_t call(const CallArguments& call) {
  return gyreAllReduce(call.send, call.recv, call.count, call.type, call.op, call.comm,
                       call.stream);
}

constexpr CollectiveBenchmark all_reduce = {.program = "all_reduce_perf",
                                            .name = "AllReduce",
                                            .calls = "gyreAllReduce",
                                            .reduces = true,
                                            .same_everywhere = true,
                                            .extent = extent,
                                            .bus_factor = bus_factor,
                                            .expected = expected,
                                            .call = call};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(all_reduce, argc, argv); }
