#include "lib/device/device_watch.h"

#include "lib/base/log.h"
#include "lib/device/device_regions.h"
#include "lib/device/peer_pools.h"
#include "lib/device/relay_progress.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gyre::comm {
namespace {

// While kernels run: an abort reaches them within it. While none does, a missed call costs no more
// than the other.
constexpr std::int64_t busy_ns = ns_per_ms, idle_ns = 100 * ns_per_ms;
// Peers end communicators at about the same time; at the end of a process nobody waits for long.
constexpr std::int64_t last_wait_ns = 2 * ns_per_s;
}  // namespace

DeviceWatch::~DeviceWatch() {
  end(0);
  thread_.join();
}

void DeviceWatch::end(std::int64_t max_ns) {
  let_go(last_wait_ns);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
  (void)thread_.end_within(max_ns);
}

Status DeviceWatch::add(Watched& one) {
  const std::lock_guard lock(mutex_);
  GYRE_TRY(begin());
  watched_.push_back(&one);
  return {};
}

Status DeviceWatch::begin() {
  if (stop_) return process_ends();
  if (thread_.is_started()) return {};
  return thread_.start("gyre-devices", [this] { watch(); });
}

void DeviceWatch::keep(p2p::LentMemory lent) {
  if (lent.is_over()) return;
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(lent));
  if (const Status begun = begin(); !begun.ok())
    log_warn("memory that peers have mapped is kept: {}", begun.message());
}

// What is let go of here asks the driver for nothing that waits for kernels: that is put off
// (lib/loaded/cuda_rest.h). Who returns from here finds nothing half let go of.
void DeviceWatch::free_unused() {
  const std::lock_guard one_at_a_time(freeing_);
  progress_.free_left();
  std::vector<std::shared_ptr<void>> gone;
  std::vector<p2p::LentMemory> unused;
  const std::lock_guard lock(mutex_);
  gone.swap(buried_);
  const auto used = std::partition(kept_.begin(), kept_.end(),
                                   [](p2p::LentMemory& lent) { return !lent.is_over(); });
  std::move(used, kept_.end(), std::back_inserter(unused));
  kept_.erase(used, kept_.end());
}

void DeviceWatch::let_go(std::int64_t max_ns) {
  const auto nothing_is_left = [this] {
    free_unused();
    const std::lock_guard lock(mutex_);
    return kept_.empty() && !progress_.is_any_retired();
  };
  if (look_until(system_clock, without_bell, max_ns, nothing_is_left)) return;
  const std::lock_guard lock(mutex_);
  if (kept_.empty()) return;
  log_warn("other processes still use GPU memory of {} communicators that have ended here",
           kept_.size());
  std::ranges::move(kept_, std::back_inserter(abandoned_));
  kept_.clear();
}

void DeviceWatch::remove(Watched& one) {
  const std::lock_guard lock(mutex_);
  std::erase(watched_, &one);
}

void DeviceWatch::launched() {
  if (!asleep_.load(std::memory_order_relaxed)) return;
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
}

void DeviceWatch::reclaim(std::shared_ptr<void> gone) {
  {
    const std::lock_guard lock(mutex_);
    buried_.push_back(std::move(gone));
  }
  launched();
}

bool DeviceWatch::look_at_all() {
  const std::lock_guard lock(mutex_);
  bool busy = false;
  for (Watched* one : watched_) {
    busy |= one->look();
    if (auto regions = one->regions()) tended_.push_back(std::move(regions));
    if (auto pools = one->pools()) tended_pools_.push_back(std::move(pools));
  }
  return busy;
}

// Outside the lock that calls take, since the driver may take its time.
bool DeviceWatch::tend_regions() {
  bool busy = false;
  for (const auto& pools : tended_pools_) busy |= pools->tend();
  for (const auto& regions : tended_) busy |= regions->tend();
  tended_pools_.clear();
  tended_.clear();
  return busy;
}

void DeviceWatch::watch() {
  WaitSet set;
  while (true) {
    const std::uint32_t seen = called_.load(std::memory_order_acquire);
    bool busy = look_at_all();
    busy |= tend_regions();
    free_unused();
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      busy |= !kept_.empty() || progress_.is_any_retired();
    }
    asleep_.store(!busy, std::memory_order_relaxed);
    set.clear();
    set.add_futex(&called_, seen);
    set.sleep(busy ? busy_ns : idle_ns);
    asleep_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace gyre::comm
