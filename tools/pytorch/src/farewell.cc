#include "tools/pytorch/src/farewell.h"

#include <algorithm>
#include <unistd.h>

namespace gyre_torch {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

milliseconds left_until(Clock::time_point until) {
  return std::max(std::chrono::duration_cast<milliseconds>(until - Clock::now()), milliseconds(0));
}

}  // namespace

Farewell& Farewell::shared() {
  static auto* const one = new Farewell;
  return *one;
}

void Farewell::enlist(const std::shared_ptr<Lane>& lane) {
  const std::lock_guard lock(mutex_);
  const int here = getpid();
  // Relaxed here and in say(): what counts is which process reads it.
  if (process_.load(std::memory_order_relaxed) != here) lanes_.clear();
  process_.store(here, std::memory_order_relaxed);
  std::erase_if(lanes_, [](const auto& one) { return one.expired(); });
  lanes_.push_back(lane);
}

void Farewell::say() {
  // Before the lock, which a fork may have left held.
  if (process_.load(std::memory_order_relaxed) != getpid()) return;
  std::vector<std::shared_ptr<Lane>> lanes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : lanes_)
      if (auto lane = one.lock()) lanes.push_back(std::move(lane));
  }
  const auto drain = [&lanes](milliseconds most) {
    const auto until = Clock::now() + most;
    std::erase_if(lanes, [&](const auto& lane) { return lane->drain(left_until(until)); });
  };
  drain(Lane::patience);
  for (const auto& lane : lanes) lane->abort_at_end();
  constexpr milliseconds for_aborted{2000};
  drain(for_aborted);
  constexpr milliseconds for_callbacks{500};
  Completions::shared().fall_silent(for_callbacks);
}

}  // namespace gyre_torch
