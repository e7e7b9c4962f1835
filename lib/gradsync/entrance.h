// Entrance: admits callers' threads to an object one at a time. It refuses a caller's function that
// the object itself is calling.
#pragma once

#include "lib/base/forks.h"
#include "lib/base/status.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace gyre::gradsync {

class Entrance {
 public:
  Result<std::unique_lock<std::mutex>> enter() {
    // Relaxed: only this thread stores its own number.
    if (calling_out_.load(std::memory_order_relaxed) == std::this_thread::get_id())
      return invalid_usage("a hook, or another callback of this object, may not call this");
    return std::unique_lock(mutex_);
  }
  // Calls a function of the caller's, from within.
  template <typename Function>
  auto call_out(const Function& function) {
    calling_out_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    auto result = call_user(function);
    calling_out_.store({}, std::memory_order_relaxed);
    return result;
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> calling_out_{};
};

}  // namespace gyre::gradsync
