#include "lib/loaded/cuda_rest.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace gyre::loaded {
namespace {

// Between looks while something is on its way; kernels last for microseconds or for long.
constexpr std::chrono::microseconds min_look(50), max_look(5000);

// Nothing is on its way meanwhile: only a machine that is busy with others makes it long.
constexpr std::int64_t max_settle_ns = 2 * ns_per_s;

// A kernel that waits for one that is put off loses as much.
constexpr std::int64_t put_off_ns = 50 * ns_per_ms, put_off_pause_ns = 450 * ns_per_ms;

thread_local int scopes = 0;  // of stillness, of this thread

}  // namespace

CudaRest::Stillness::Stillness(std::unique_lock<std::shared_mutex> gate)
    : gate_(std::move(gate)), counts_(gate_.owns_lock() || scopes > 0) {
  scopes += counts_ ? 1 : 0;
}
CudaRest::Stillness::~Stillness() { scopes -= counts_ ? 1 : 0; }

CudaRest::~CudaRest() {
  end(0);
  thread_.join();
}

void CudaRest::end(std::int64_t max_ns) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  (void)thread_.end_within(max_ns);
}

void CudaRest::add(const Kernels& kernels) {
  const std::lock_guard lock(kernels_mutex_);
  kernels_.push_back(&kernels);
}

void CudaRest::remove(const Kernels& kernels) {
  const std::lock_guard lock(kernels_mutex_);
  std::erase(kernels_, &kernels);
}

bool CudaRest::rests(bool for_good) const {
  const std::lock_guard lock(kernels_mutex_);
  return std::ranges::none_of(kernels_, [for_good](const Kernels* one) {
    return one->are_left() || (for_good && one->may_come());
  });
}

// Looked at twice: without the gate, so that launches wait only where it is about to be had.
// Whoever launches now has it, and is not waited for: the driver may keep him.
std::unique_lock<std::shared_mutex> CudaRest::try_gate(bool for_good) {
  if (scopes > 0 || !rests(for_good)) return {};
  std::unique_lock gate(gate_, std::try_to_lock);
  if (gate.owns_lock() && !rests(for_good)) gate.unlock();
  if (gate.owns_lock()) in_vain_ = false;
  return gate;
}

void CudaRest::ask_for_rest() {
  const std::int64_t now_ns = SystemClock::read();
  if (now_ns >= put_off_until_ns_.load(std::memory_order_relaxed) + put_off_pause_ns)
    put_off_until_ns_.store(now_ns + put_off_ns, std::memory_order_relaxed);
}

bool CudaRest::puts_off_launches() const {
  const std::int64_t until_ns = put_off_until_ns_.load(std::memory_order_relaxed);
  return until_ns != 0 && SystemClock::read() < until_ns;
}

std::unique_lock<std::shared_mutex> CudaRest::await_gate() {
  const std::int64_t until_ns = SystemClock::read() + (in_vain_ ? 0 : patience_ns);
  std::chrono::microseconds pause = min_look;
  while (true) {
    auto gate = try_gate(false);
    if (gate.owns_lock() || SystemClock::read() >= until_ns) return gate;
    ask_for_rest();
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, max_look);
  }
}

CudaRest::Stillness CudaRest::await_rest() {
  if (scopes > 0) return Stillness({});
  auto gate = await_gate();
  if (!gate.owns_lock()) note_vain_wait();
  return Stillness(std::move(gate));
}

void CudaRest::note_vain_wait() {
  if (!in_vain_.exchange(true))
    log_warn(
        "kernels of this process have not ended for {} s: the driver is asked for memory anyway, "
        "and may wait for them",
        patience_ns / ns_per_s);
}

void CudaRest::later(std::function<void()> act) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(act));
  if (!stop_ && !thread_.is_started()) {
    const Status started = thread_.start("gyre-frees", [this] { serve(); });
    if (!started.ok()) log_warn("memory of GPUs is kept until the end: {}", started.message());
  }
  changed_.notify_all();
}

bool CudaRest::do_some() {
  const Stillness still(try_gate(true));
  if (!still.is_held()) return false;
  std::vector<std::function<void()>> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(waiting_);
    busy_ = true;
  }
  for (const auto& act : all) act();
  all.clear();
  const std::lock_guard lock(mutex_);
  busy_ = false;
  changed_.notify_all();
  return true;
}

void CudaRest::serve() {
  std::unique_lock lock(mutex_);
  std::chrono::microseconds pause = min_look;
  while (!stop_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      pause = min_look;
      continue;
    }
    lock.unlock();
    const bool done = do_some();
    lock.lock();
    if (done || stop_) continue;
    changed_.wait_for(lock, pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, max_look);
  }
}

void CudaRest::settle() {
  const std::int64_t until_ns = SystemClock::read() + max_settle_ns;
  std::unique_lock lock(mutex_);
  while (!stop_ && (busy_ || !waiting_.empty()) && SystemClock::read() < until_ns) {
    lock.unlock();
    const bool pays = rests(true);
    lock.lock();
    if (!pays && !busy_) return;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
}

void CudaRest::finish() {
  while (true) {
    std::vector<std::function<void()>> all;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !busy_; });
      all.swap(waiting_);
    }
    if (all.empty()) return;
    const Stillness still{std::unique_lock(gate_)};
    for (const auto& act : all) act();
  }
}

}  // namespace gyre::loaded
