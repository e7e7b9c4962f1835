#include "lib/base/process_fence.h"

#include <atomic>
#include <ctime>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {

bool prepare_process_fence() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

// The program may have forbidden itself the call since (seccomp). A processor keeps no store to
// itself for longer than this sleep, a thousand times over.
void make_process_fence() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  constexpr timespec moment{.tv_sec = 0, .tv_nsec = 1'000'000};
  (void)nanosleep(&moment, nullptr);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace gyre
