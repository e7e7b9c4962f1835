// alltoallv_perf: time and correctness of gyreAlltoAllv, with the options, variables and table of
// nccl-tests. This file says what an all-to-all of uneven blocks is; bench/runner does the rest,
// and bench/runner/traffic.h says how uneven they are.
#include "bench/runner/collective.h"

#include <algorithm>

namespace {

using gyre::bench::BufferExtent;
using gyre::bench::CallArguments;
using gyre::bench::CollectiveBenchmark;
using gyre::bench::ExpectedBlock;
using gyre::bench::Shape;

BufferExtent extent(const Shape& shape) {
  BufferExtent extent;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    extent.send = std::max(extent.send, shape.traffic->sent(shape, rank));
    extent.recv = std::max(extent.recv, shape.traffic->received(shape, rank));
  }
  // A matrix has no such number.
  extent.param = shape.traffic->generated() ? gyre::bench::equal_share(shape) : 0;
  return extent;
}

std::uint64_t input(const Shape& shape, const BufferExtent& /*extent*/, int rank) {
  return shape.traffic->sent(shape, rank);
}

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& /*extent*/, int rank) {
  std::vector<ExpectedBlock> blocks;
  std::uint64_t received = 0;
  for (int from = 0; from < shape.ranks; ++from) {
    blocks.push_back({.output_first = received,
                      .count = shape.traffic->elements(shape, from, rank),
                      .source_rank = from,
                      .input_first = shape.traffic->send_offset(shape, from, rank)});
    received += blocks.back().count;
  }
  return blocks;
}

gyreResult_t call(const CallArguments& call) {
  return gyreAlltoAllv(call.send, call.counts->send.data(), call.counts->send_displacements.data(),
                       call.recv, call.counts->recv.data(), call.counts->recv_displacements.data(),
                       call.type, call.comm, call.stream);
}

constexpr const char* variables =
    "  ALLTOALLV_SPREAD        1: most to the ranks that are furthest, nothing to oneself;\n"
    "                          0: the same to all; or between (default 1)\n"
    "  ALLTOALLV_MATRIX_FILE   bytes from rank (line) to rank (column), with -b and -e the same\n"
    "  ALLTOALLV_MATRIX_SCALE  multiplies the matrix (default 1)\n"
    "  ALLTOALLV_PRINT_SUMMARY 1: after each row, what each rank sent and received\n";

constexpr CollectiveBenchmark all_to_all_v = {
    .program = "alltoallv_perf",
    .name = "AlltoAllv",
    .calls = "gyreAlltoAllv",
    .variables = variables,
    .in_place = false,
    .uneven = true,
    .extent = extent,
    .bus_factor = gyre::bench::without_own_share,
    .input = input,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(all_to_all_v, argc, argv); }
