// sendrecv_perf: time and correctness of gyreSend and gyreRecv among neighbours in a ring, with the
// options and the table of nccl-tests. This file says what is exchanged; bench/runner does the
// rest.
#include "bench/runner/collective.h"

namespace {

using gyre::bench::Block;
using gyre::bench::Call;
using gyre::bench::Collective;
using gyre::bench::Extent;
using gyre::bench::Shape;

Extent extent(const Shape& shape) {
  return {.send = shape.count, .recv = shape.count, .param = shape.count};
}

int before(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

std::vector<Block> expected(const Shape& shape, const Extent& extent, int rank) {
  return {{.count = extent.recv, .source_rank = before(rank, shape.ranks)}};
}

// A ring: to the next rank, and from the one before, together.
gyreResult_t call(const Call& call) {
  gyreResult_t result = gyreGroupStart();
  if (result != gyreSuccess) return result;
  result = gyreSend(call.send, call.count, call.type, (call.rank + 1) % call.ranks, call.comm,
                    call.stream);
  if (result == gyreSuccess)
    result = gyreRecv(call.recv, call.count, call.type, before(call.rank, call.ranks), call.comm,
                      call.stream);
  const gyreResult_t end = gyreGroupEnd();
  return result == gyreSuccess ? end : result;
}

constexpr Collective exchange = {
    .program = "sendrecv_perf",
    .name = "SendRecv",
    .calls = "gyreSend and gyreRecv",
    .in_place = false,
    .extent = extent,
    .bus_factor = gyre::bench::whole_size,
    .expected = expected,
    .call = call,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(exchange, argc, argv); }
