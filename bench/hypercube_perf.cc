// hypercube_perf: time and correctness of an all-gather made of gyreSend and gyreRecv along the
// edges of a hypercube, with the options and the table of nccl-tests. This file says what is
// exchanged; bench/runner does the rest.
#include "bench/runner/collective.h"

#include <algorithm>
#include <bit>
#include <cstddef>

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

// An all-gather in log2(n) exchanges, each with the rank that differs in one bit, of twice as much
// as the one before.
int phases(int ranks) { return std::max(1, std::countr_zero(static_cast<unsigned>(ranks))); }

// nccl-tests counts what each rank receives (src/hypercube.cu), not the size.
double counted(int ranks) { return gyre::bench::without_own_share(ranks); }

std::vector<ExpectedBlock> expected(const Shape& shape, const BufferExtent& extent, int /*rank*/) {
  return gyre::bench::gathered(shape.ranks, extent.param);
}

gyreResult_t exchange(const CallArguments& call) {
  const int bit = 1 << call.phase;
  const int peer = call.rank ^ bit;
  const std::size_t bytes = call.count * call.element_bytes;
  const auto block = [&](int rank) {
    return static_cast<std::byte*>(call.recv) + static_cast<std::size_t>(rank) * bytes;
  };
  gyreResult_t result = gyreSuccess;
  // The own block is sent, not copied, so that it takes its turn on a stream.
  if (call.phase == 0 && call.send != block(call.rank)) {
    result = gyreSend(call.send, call.count, call.type, call.rank, call.comm, call.stream);
    if (result == gyreSuccess)
      result = gyreRecv(block(call.rank), call.count, call.type, call.rank, call.comm, call.stream);
  }
  if (result != gyreSuccess || peer >= call.ranks) return result;  // alone
  const int low_bits = bit - 1;
  const std::size_t count = call.count * static_cast<std::size_t>(bit);
  const void* known = call.phase == 0 ? call.send : block(call.rank & ~low_bits);
  result = gyreSend(known, count, call.type, peer, call.comm, call.stream);
  if (result != gyreSuccess) return result;
  return gyreRecv(block(peer & ~low_bits), count, call.type, peer, call.comm, call.stream);
}

constexpr CollectiveBenchmark hypercube = {
    .program = "hypercube_perf",
    .name = "HyperCube",
    .calls = "gyreSend and gyreRecv",
    .powers_of_two = true,
    .extent = extent,
    .bus_factor = gyre::bench::whole_size,
    .counted = counted,
    .expected = expected,
    .phases = phases,
    .call = gyre::bench::grouped<exchange>,
};

}  // namespace

int main(int argc, char** argv) { return gyre::bench::run_benchmark(hypercube, argc, argv); }
