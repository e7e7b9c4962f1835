// sendrecv_perf: time and correctness of gyreSend and gyreRecv among neighbours in a ring, with the
// options and the table of nccl-tests. This file says what is exchanged; bench/runner does the
// rest.
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

int before(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int rank) {
  return {{.count = extent.recv, .source_rank = before(rank, shape.ranks)}};
}

// A ring: to the next rank, and from the one before, together.
gyreResult_t exchange(const CallArguments& call) {
  const gyreResult_t result = gyreSend(call.send, call.count, call.type,
                                       (call.rank + 1) % call.ranks, call.comm, call.stream);
  if (result != gyreSuccess) return result;
  return gyreRecv(call.recv, call.count, call.type, before(call.rank, call.ranks), call.comm,
                  call.stream);
}

constexpr CollectiveBenchmark sendrecv = {
    .program = "sendrecv_perf",
    .name = "SendRecv",
    .calls = "gyreSend and gyreRecv",
    .in_place = false,
    .extent = extent,
    .bus_factor = gyre::bench::whole_size,
    .expected = expected,
    .call = gyre::bench::grouped<exchange>,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(sendrecv, argc, argv); }
