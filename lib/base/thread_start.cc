#include "lib/base/thread_start.h"

#include <fmt/core.h>

#include <pthread.h>
#include <system_error>

namespace gyre {

Status start_thread(std::thread& thread, const char* name, std::function<void()> body) {
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return Status::from_errno(
        fmt::format("starting the thread {} (limits: ulimit -u and pids.max for the number of "
                    "threads, ulimit -v for the memory of its stack)",
                    name),
        error.code().value());
  }
  pthread_setname_np(thread.native_handle(), name);
  return {};
}

}  // namespace gyre
