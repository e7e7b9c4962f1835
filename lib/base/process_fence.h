// A fence that one thread makes on all threads of its process (membarrier). Threads that meet it
// often then need none of their own: their stores and loads only have to stand in order in the
// program. It takes microseconds.
#pragma once

namespace gyre {

// Readies the process for it. False: the kernel has none, or refuses it here.
bool prepare_process_fence() noexcept;
// Only where that was true. Each thread has done what stands before some point of its program, as
// others see it, and nothing of what stands behind.
void make_process_fence() noexcept;

}  // namespace gyre
