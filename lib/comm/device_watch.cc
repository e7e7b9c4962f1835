#include "lib/comm/device_watch.h"

#include "lib/comm/communicator.h"

#include <algorithm>

namespace gyre::comm {
namespace {

// While kernels run: an abort reaches them within it. While none does, a missed call costs no more
// than the other.
constexpr std::int64_t busy_ns = ns_per_ms, idle_ns = 100 * ns_per_ms;

}  // namespace

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::add(Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(&communicator);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
}

void DeviceWatch::remove(Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(watched_, &communicator);
}

void DeviceWatch::launched() {
  if (!asleep_.load(std::memory_order_relaxed)) return;
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
}

void DeviceWatch::bury(std::shared_ptr<void> gone) {
  {
    const std::lock_guard lock(mutex_);
    buried_.push_back(std::move(gone));
  }
  launched();
}

void DeviceWatch::empty_graves() {
  const std::lock_guard burying(burying_);
  std::vector<std::shared_ptr<void>> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(buried_);
}

bool DeviceWatch::look_at_all() {
  const std::lock_guard lock(mutex_);
  bool busy = false;
  for (Communicator* communicator : watched_) busy |= communicator->look_at_device();
  return busy;
}

void DeviceWatch::watch() {
  WaitSet set;
  while (true) {
    const std::uint32_t seen = called_.load(std::memory_order_acquire);
    const bool busy = look_at_all();
    empty_graves();
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    asleep_.store(!busy, std::memory_order_relaxed);
    set.clear();
    set.add_futex(&called_, seen);
    set.sleep(busy ? busy_ns : idle_ns);
    asleep_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace gyre::comm
