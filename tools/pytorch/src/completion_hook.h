// CompletionHook: the user's function that hears of each operation of a group that has ended well:
// c10d's registerOnCompletionHook. A thread of CompletionThreads calls it, one call at a time. It
// may take Python's lock. Operations of host memory are told in the order in which they end.
#pragma once

#include "tools/pytorch/src/torch_versions.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace gyre_torch {

class CompletionHook : public std::enable_shared_from_this<CompletionHook> {
 public:
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  using Time = decltype(c10d::WorkInfo::timeStarted);  // PyTorch 2.6 has another clock than later
  using TorchClock = Time::clock;

  // What the hook will hear of one operation that has begun. The notice of one that never ends is
  // only dropped.
  class CompletionNotice {
   public:
    CompletionNotice() = default;  // there is no hook
    CompletionNotice(CompletionNotice&& other) noexcept = default;
    CompletionNotice& operator=(CompletionNotice&& other) noexcept;
    ~CompletionNotice() { (void)end(false, {}); }
    explicit operator bool() const { return hook_ != nullptr; }
    // Once. Of one that failed, nobody is told. What it returns may be the last that holds the
    // user's function, which is Python's: to be let go of without a lock.
    [[nodiscard]] std::shared_ptr<CompletionHook> end(bool well, Time at);

   private:
    friend class CompletionHook;
    std::shared_ptr<CompletionHook> hook_;
    c10d::OpType type_ = c10d::OpType::UNKNOWN;
    std::uint64_t sequence_ = 0;
    Time begun_;
  };

  // Hears of what begins from now on. Throws if there is one already.
  void add(Hook hook);
  CompletionNotice begin(c10d::OpType type, std::uint64_t sequence);
  // For an operation whose end wakes nobody: `look` says nothing until it is over, and then whether
  // it ended well. Threads look at it about once a millisecond.
  void watch(CompletionNotice notice, std::function<std::optional<bool>()> look);
  // Waits until what has begun has been told, or has failed. All of it has to end by itself.
  void wait_for_pending();

 private:
  using Infos = std::deque<std::shared_ptr<c10d::WorkInfo>>;
  struct WatchedOperation {
    CompletionNotice notice;
    std::function<std::optional<bool>()> look;
  };
  void tell_all();
  void look_at_watched();
  void call(std::shared_ptr<c10d::WorkInfo> info) const;
  void forget(std::size_t count);
  void be_told(std::unique_lock<std::mutex> lock);

  std::atomic<bool> has_hook_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable told_;
  std::shared_ptr<const Hook> hook_;  // does not change once it is there
  std::size_t pending_ = 0;           // begun and not told
  Infos ended_;                       // and not told
  std::list<WatchedOperation> watched_;
  bool is_telling_ = false;  // a thread is in tell_all
};

}  // namespace gyre_torch
