#include "lib/device/relay_progress.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gyre::comm {
namespace {

// As long as the answer to a message may take that a kernel has just been told of.
constexpr std::int64_t yields_ns = 50'000;
// Below this a sleep costs more than it spares.
constexpr std::int64_t min_sleep_ns = 20'000;
constexpr std::int64_t max_busy_ns = ns_per_ms, max_idle_ns = 100 * ns_per_ms;

}  // namespace

RelayProgress::SleepLimits RelayProgress::default_pace() {
  return {min_sleep_ns, max_busy_ns, max_idle_ns};
}

class RelayProgress::RelayTurn {
 public:
  explicit RelayTurn(RelayProgress& owner) : owner_(owner) {
    owner_.in_line_.fetch_add(1, std::memory_order_relaxed);
    owner_.wake();
    owner_.mutex_.lock();
    owner_.in_line_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~RelayTurn() { owner_.mutex_.unlock(); }
  RelayTurn(const RelayTurn&) = delete;
  RelayTurn& operator=(const RelayTurn&) = delete;

 private:
  RelayProgress& owner_;
};

RelayProgress::~RelayProgress() {
  end(0);
  thread_.join();
  std::exchange(retired_, {}).clear();  // each takes a turn
}

void RelayProgress::end(std::int64_t max_ns) {
  {
    const RelayTurn turn(*this);
    stop_ = true;
  }
  (void)thread_.end_within(max_ns);
}

Status RelayProgress::add(Driven& relays) {
  const RelayTurn turn(*this);
  if (stop_) return process_ends();
  if (!thread_.is_started()) GYRE_TRY(thread_.start("gyre-relays", [this] { drive(); }));
  driven_.push_back(&relays);
  return {};
}

void RelayProgress::remove(Driven& relays) {
  const RelayTurn turn(*this);
  std::erase(driven_, &relays);
}

void RelayProgress::set_pace(const SleepLimits& pace) {
  const RelayTurn turn(*this);
  sleep_limits_ = pace;
}

void RelayProgress::retire(std::shared_ptr<Driven> relays) {
  const RelayTurn turn(*this);
  retired_.push_back(std::move(relays));
  retired_count_.fetch_add(1, std::memory_order_relaxed);
}

// Outside the turn: freeing them takes one, and the driver.
void RelayProgress::free_left() {
  if (!is_any_retired()) return;
  std::vector<std::shared_ptr<Driven>> left;
  {
    const RelayTurn turn(*this);
    const auto staying = std::partition(retired_.begin(), retired_.end(),
                                        [](const auto& one) { return !one->have_left(); });
    std::move(staying, retired_.end(), std::back_inserter(left));
    retired_.erase(staying, retired_.end());
  }
  const auto count = static_cast<int>(left.size());
  left.clear();
  retired_count_.fetch_sub(count, std::memory_order_relaxed);
}

void RelayProgress::wake() {
  called_.fetch_add(1, std::memory_order_release);
  wake_futex(&called_);
}

bool RelayProgress::advance_all() {
  bool moved = false;
  for (Driven* relays : driven_) relays->advance(moved);
  return moved;
}

void RelayProgress::sleep(std::uint32_t seen, std::int64_t idle_ns) {
  bool busy = !retired_.empty(), may_sleep = true;
  WaitSet set;
  set.add_futex(&called_, seen);
  for (Driven* relays : driven_) {
    busy |= relays->is_busy();
    may_sleep &= relays->arm(set);
  }
  const std::int64_t max_ns = busy ? sleep_limits_.max_busy_ns : sleep_limits_.max_idle_ns;
  if (may_sleep) set.sleep(std::clamp(idle_ns / 8, std::min(sleep_limits_.min_ns, max_ns), max_ns));
  for (Driven* relays : driven_) relays->disarm();
}

void RelayProgress::drive() {
  std::int64_t moved_ns = system_clock.now_ns();
  std::uint32_t heard = 0;
  while (true) {
    const std::uint32_t seen = called_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      const std::int64_t now_ns = system_clock.now_ns();
      // Who was called has something to do soon, if not now.
      if (advance_all() || std::exchange(heard, seen) != seen)
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
