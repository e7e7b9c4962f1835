// Resumable: a task that advances when asked, and says what it waits for. `run` is the one loop
// that asks: it advances all its tasks in turn and sleeps only in Wait.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

namespace gyre::comm {

class Resumable {
 public:
  virtual ~Resumable() = default;
  // Any thread.
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // Success, or why it failed; valid when finished.
  const Status& outcome() const { return outcome_; }

  // Goes as far as it can. True if anything moved.
  virtual bool advance() = 0;
  // The wait has lasted longer than `limit_ns`: ends it with an error that says who did not come.
  virtual void expire() = 0;
  // Announces the sleeper; false if it can go on after all.
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;
  virtual std::int64_t limit_ns() const = 0;
  // Something was thrown on its way (there is no memory): what it belongs to is broken by `why`, so
  // that it comes to an end when it is advanced.
  virtual void break_off(const Status& why) = 0;
  // The wait has become long enough for tools to know of it; called again while it lasts.
  virtual void tell_wait() {}

 protected:
  void finish(Status outcome) {
    outcome_ = std::move(outcome);
    finished_.store(true, std::memory_order_release);
  }
  void restart() { finished_.store(false, std::memory_order_relaxed); }

 private:
  Status outcome_;
  std::atomic<bool> finished_{false};
};

// Waits until a condition of this process holds; whoever makes it true changes `word` and wakes it.
class ConditionWait final : public Resumable {
 public:
  ConditionWait(std::atomic<std::uint32_t>& word, std::function<bool()> holds)
      : word_(word), holds_(std::move(holds)) {}
  bool advance() override {
    if (!holds_()) return false;
    finish({});
    return true;
  }
  // What it waits for has a deadline of its own.
  void expire() override {}
  void break_off(const Status&) override {}
  bool arm(WaitSet& set) override {
    set.add_futex(&word_, word_.load(std::memory_order_acquire));
    return !holds_();
  }
  void disarm() override {}
  std::int64_t limit_ns() const override { return INT64_MAX; }

 private:
  std::atomic<std::uint32_t>& word_;
  std::function<bool()> holds_;
};

// A task that has turns beside others, while it has work. It finishes when those have. Most waits
// end before there is any: it is made when it is needed.
class SideTask {
 public:
  explicit SideTask(const std::atomic<std::uint32_t>& work) : work_(work) {}
  bool has_work() const { return work_.load(std::memory_order_relaxed) != 0; }
  virtual Resumable& task() = 0;

 protected:
  ~SideTask() = default;

 private:
  const std::atomic<std::uint32_t>& work_;
};

// Returns when all are finished. The outcomes are theirs. Allocates nothing itself: what has begun
// is not left alone for want of memory.
void run(std::span<Resumable* const> all, const Clock& clock, const WaitPolicy& policy,
         SideTask* beside = nullptr);

}  // namespace gyre::comm
