// Cases of CUDA communicators that run alike over the fake driver and on a GPU. They check by
// Catch2's macros. One thread drives each rank, and all ranks are on one device.
#pragma once

#include "tests/support/device/device_ranks.h"

#include <cstdint>
#include <vector>

namespace gyre::tests {

struct CudaSweep {
  std::vector<int> ranks;
  std::vector<std::size_t> counts;
  std::size_t cases_each = 1;  // of an algorithm under a protocol, for each collective that it does
  std::size_t stride = 1;      // of so many pairs of them, one is taken
  std::uint64_t seed = 1;
};
// Every algorithm under every protocol; types, operations, counts, misalignment and places drawn.
void check_schedules(const OnCuda& on, const CudaSweep& sweep);

// So many random operations, with a new communicator after every `each_lasts`: collectives alone or
// grouped, sends and receives, groups of both.
struct CudaSoak {
  std::vector<int> ranks;
  std::vector<std::size_t> counts;
  std::size_t operations = 0;
  std::size_t each_lasts = 500;
  std::uint64_t seed = 1;
};
void check_random_operations(const OnCuda& on, const CudaSoak& soak);

// A rank that does not come: the others' kernels end, and the communicator says so.
void check_deadline(const OnCuda& on, int timeout_ms);
void check_abort(const OnCuda& on, double max_seconds);
void check_mismatch(const OnCuda& on);

// What is no memory of the device, or no stream of it, is refused, and breaks nothing.
void check_refusals(const OnCuda& on);

// Two ranks that have carried out one call already, so that their link is open.
struct Pair {
  explicit Pair(const OnCuda& where, int timeout_ms = 0)
      : ranks(where, 2, 1, timeout_ms), a(where, 100), b(where, 100) {
    INFO(last_error());
    REQUIRE(ranks.begun == gyreSuccess);
    REQUIRE(ranks.call([this](int rank, gyreComm_t, gyreStream_t) { return call(rank, 100); }) ==
            gyreSuccess);
    ranks.synchronize();
  }
  // Of the pair's ranks, or of others in their place.
  gyreResult_t call(int rank, std::size_t count) { return call_on(ranks, rank, count); }
  gyreResult_t call_on(const Ranks& two, int rank, std::size_t count) {
    const auto at = static_cast<std::size_t>(rank);
    std::int32_t* const data = rank == 0 ? a.data() : b.data();
    return gyreAllReduce(data, data, count, gyreInt32, gyreSum, two.comms[at], two.stream(at));
  }
  Ranks ranks;
  DeviceInts a, b;
};

}  // namespace gyre::tests
