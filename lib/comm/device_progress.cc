#include "lib/comm/device_progress.h"

#include "lib/base/wait.h"
#include "lib/comm/device_relays.h"

#include <algorithm>

namespace gyre::comm {
namespace {

const SystemClock clock;

// As long as the answer to a message may take that a kernel has just been told of.
constexpr std::int64_t yields_ns = 50'000;
// Below this a sleep costs more than it spares.
constexpr std::int64_t sleep_least_ns = 20'000;
constexpr std::int64_t busy_most_ns = ns_per_ms, idle_most_ns = 100 * ns_per_ms;

}  // namespace

class DeviceProgress::Turn {
 public:
  explicit Turn(DeviceProgress& owner) : owner_(owner) {
    owner_.in_line_.fetch_add(1, std::memory_order_relaxed);
    owner_.wake();
    owner_.mutex_.lock();
    owner_.in_line_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Turn() { owner_.mutex_.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  DeviceProgress& owner_;
};

DeviceProgress::~DeviceProgress() {
  {
    const Turn turn(*this);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceProgress::add(DeviceRelays& relays) {
  const Turn turn(*this);
  driven_.push_back(&relays);
  if (!thread_.joinable()) thread_ = std::thread([this] { drive(); });
}

void DeviceProgress::remove(DeviceRelays& relays) {
  const Turn turn(*this);
  std::erase(driven_, &relays);
}

void DeviceProgress::wake() {
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
}

bool DeviceProgress::advance_all() {
  bool moved = false;
  for (DeviceRelays* relays : driven_) relays->advance(moved);
  return moved;
}

void DeviceProgress::sleep(std::uint32_t seen, std::int64_t idle_ns) {
  bool busy = false, may_sleep = true;
  WaitSet set;
  set.add_futex(&called_, seen);
  for (DeviceRelays* relays : driven_) {
    busy |= relays->is_busy();
    may_sleep &= relays->arm(set);
  }
  if (may_sleep)
    set.sleep(std::clamp(idle_ns / 8, sleep_least_ns, busy ? busy_most_ns : idle_most_ns));
  for (DeviceRelays* relays : driven_) relays->disarm();
}

void DeviceProgress::drive() {
  std::int64_t moved_ns = clock.now_ns();
  while (true) {
    const std::uint32_t seen = called_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      const std::int64_t now_ns = clock.now_ns();
      if (advance_all())
        moved_ns = now_ns;
      else if (now_ns - moved_ns > yields_ns)
        sleep(seen, now_ns - moved_ns);
    }
    // A mutex is not fair: this thread would have it again at once.
    do std::this_thread::yield();
    while (in_line_.load(std::memory_order_relaxed) > 0);
  }
}

}  // namespace gyre::comm
