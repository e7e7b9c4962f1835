// ServiceThread: a thread of the library that serves until its owner asks it to stop, in the
// owner's way. At the end of the process it may be busy, or be the thread that called exit(). So
// the owner then waits for it only for a limited time.
#pragma once

#include "lib/base/status.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace gyre {

// What a service answers that has stopped.
Status process_ends();

class ServiceThread {
 public:
  // `name` as for start_thread. Once.
  Status start(const char* name, std::function<void()> body);
  bool is_started() const { return thread_.joinable(); }
  bool is_current() const { return thread_.get_id() == std::this_thread::get_id(); }
  // Its body has returned.
  bool has_ended() const { return ended_.load(std::memory_order_acquire) != 0; }
  // After it was asked to stop: true if it ends within that time, or was never started. False at
  // once if this is the thread itself.
  bool end_within(std::int64_t max_ns);
  // After it was asked to stop.
  void join();

 private:
  std::thread thread_;
  std::atomic<std::uint32_t> ended_{0};  // futex word
};

}  // namespace gyre
