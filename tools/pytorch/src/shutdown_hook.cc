#include "tools/pytorch/src/shutdown_hook.h"

#include "tools/pytorch/src/forks.h"

namespace gyre_torch {

using MonotonicClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

ShutdownHook& ShutdownHook::shared() { return of_this_process<ShutdownHook>(); }

void ShutdownHook::enlist(const std::shared_ptr<CommQueue>& queue) {
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto& one) { return one.expired(); });
  queues_.push_back(queue);
}

void ShutdownHook::say() {
  std::vector<std::shared_ptr<CommQueue>> queues;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : queues_)
      if (auto queue = one.lock()) queues.push_back(std::move(queue));
  }
  const auto drain = [&queues](milliseconds most) {
    const auto until = MonotonicClock::now() + most;
    std::erase_if(queues, [&](const auto& queue) { return queue->drain(left_until(until)); });
  };
  drain(CommQueue::patience);
  for (const auto& queue : queues) queue->abort_at_end();
  constexpr milliseconds for_aborted{2000};
  drain(for_aborted);
  constexpr milliseconds for_callbacks{500};
  CompletionThreads::shared().fall_silent(for_callbacks);
}

}  // namespace gyre_torch
