// Cases of user memory on CUDA devices that run alike over the fake driver and on a GPU: memory of
// gyreMemAlloc, and the driver's virtual memory below it. They check by Catch2's macros.
#pragma once

#include "tests/support/device/device_ranks.h"

#include <cstddef>

namespace gyre::tests {

// Calls on memory of gyreMemAlloc are right, in the middle of it too; freed memory is refused.
void check_allocated_memory(const OnCuda& on, int ranks, std::size_t count);
// One memory under two addresses, as another process would have it, also when its maker has gone.
void check_shared_memory(const OnCuda& on, std::size_t bytes);
// Making memory, exporting and opening it does not wait for a kernel that waits for its peer.
void check_opening_beside_kernels(const OnCuda& on, double max_seconds);

}  // namespace gyre::tests
