#include "lib/base/service_thread.h"

#include "lib/base/clock.h"
#include "lib/base/thread_start.h"
#include "lib/base/wait.h"

#include <utility>

namespace gyre {

Status process_ends() { return invalid_usage("the process is ending: exit() was called"); }

Status ServiceThread::start(const char* name, std::function<void()> body) {
  return start_thread(thread_, name, [this, body = std::move(body)] {
    body();
    ended_.store(1, std::memory_order_release);
    wake_futex(&ended_);
  });
}

bool ServiceThread::end_within(std::int64_t max_ns) {
  if (!is_started()) return true;
  if (is_current()) return false;
  const std::int64_t until = SystemClock::read() + max_ns;
  WaitSet set;
  set.add_futex(&ended_, 0);
  for (std::int64_t left = max_ns; !has_ended(); left = until - SystemClock::read()) {
    if (left <= 0) return false;
    set.sleep(left);
  }
  thread_.join();
  return true;
}

void ServiceThread::join() {
  if (is_started()) thread_.join();
}

}  // namespace gyre
