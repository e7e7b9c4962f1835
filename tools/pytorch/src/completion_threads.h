// CompletionThreads: threads that finish works when more is to do than to report the end: to copy
// results out, or to mark a future. A future's callbacks are the user's code and may wait for other
// works, so Gyre's progress thread must not run them. One thread is always free to finish the next
// work. Threads that a burst of works made end again, except for a few.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace gyre_torch {

class CompletionThreads {
 public:
  // This process's, for good: its threads may be in the user's code when the process ends. A forked
  // child has its own.
  static CompletionThreads& shared();
  // Before anything begins whose end is pushed: starts the first thread. Throws if it cannot.
  void be_ready();
  // Where no further thread can be started, `end` waits for one that is busy.
  void push(std::function<void()> end);

  // While it lives, user's code may be called, if `allowed`.
  class UserCodeScope {
   public:
    UserCodeScope();
    ~UserCodeScope();
    UserCodeScope(const UserCodeScope&) = delete;
    UserCodeScope& operator=(const UserCodeScope&) = delete;
    bool allowed() const { return allowed_; }

   private:
    CompletionThreads& all_;
    bool allowed_;
  };
  // From now on no user's code is called: the interpreter ends. Waits for what is being called, but
  // not longer than that.
  void fall_silent(std::chrono::milliseconds most);
  bool is_silent() const { return silent_.load(std::memory_order_acquire); }

 private:
  // Of threads that wait, so many stay; the others leave after that time.
  static constexpr std::size_t max_idle = 2;
  static constexpr std::chrono::seconds idle_for{3};
  void serve();
  std::string start_thread();
  bool wait_for_more(std::unique_lock<std::mutex>& lock);
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<std::function<void()>> queue_;
  std::size_t idle_ = 0;  // that wait, or have just been started
  std::condition_variable told_;
  std::size_t telling_ = 0;
  std::atomic<bool> silent_{false}, ready_{false};  // change under mutex_
};

}  // namespace gyre_torch
