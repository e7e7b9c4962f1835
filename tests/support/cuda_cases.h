// Cases of CUDA communicators that run alike over the fake driver and on a GPU: each checks by
// Catch2's macros. A thread for each rank, all of them on one device.
#pragma once

#include "tests/support/device_ranks.h"

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
void check_abort(const OnCuda& on, double seconds_most);
void check_mismatch(const OnCuda& on);

// What is no memory of the device, or no stream of it, is refused, and breaks nothing.
void check_refusals(const OnCuda& on);

}  // namespace gyre::tests
