// RelayProgress: the one thread per process that drives relays between GPUs (device_relays.h). It
// does not call the driver, which may make it wait for kernels that wait for it. Kernels cannot
// wake it, so it looks at growing intervals: an eighth of the time for which nothing has moved, and
// at most a millisecond while kernels run. Replays of graphs wake it by host functions. Without
// relays there is no thread.
#pragma once

#include "lib/base/service_thread.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre::comm {

// What the thread drives: the relays of one communicator.
class Driven {
 public:
  virtual ~Driven() = default;
  // On the thread of RelayProgress.
  virtual void advance(bool& moved) = 0;
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;
  // Whether kernels run, as far as is known: their words are then looked at often.
  virtual bool is_busy() const = 0;
  // Of what was retired: whether all peers have been left, or nothing more can be done.
  virtual bool have_left() const = 0;
};

class RelayProgress {
 public:
  RelayProgress() = default;
  ~RelayProgress();
  // The process ends: the thread stops, unless it is busy for longer.
  void end(std::int64_t max_ns);
  RelayProgress(const RelayProgress&) = delete;
  RelayProgress& operator=(const RelayProgress&) = delete;

  Status add(Driven& relays);
  // After it returns, they are not driven.
  void remove(Driven& relays);
  // There may be something to move. Any thread.
  void wake();

  // They leave their peers, and stay until they have; the memory of those who have is freed by
  // `free_left`, on a thread where the driver may be called.
  void retire(std::shared_ptr<Driven> relays);
  // Whether any are still to leave, or to be freed.
  bool is_any_retired() const { return retired_count_.load(std::memory_order_relaxed) > 0; }
  void free_left();

  // How long it sleeps while nothing moves. The tests': so long that a missed wake-up shows.
  struct SleepLimits {
    std::int64_t min_ns, max_busy_ns, max_idle_ns;
  };
  void set_pace(const SleepLimits& pace);
  static SleepLimits default_pace();

 private:
  class RelayTurn;  // holds mutex_, which the thread keeps while it sleeps
  void drive();
  bool advance_all();
  void sleep(std::uint32_t seen, std::int64_t idle_ns);

  std::mutex mutex_;  // of driven_, retired_, sleep_limits_, stop_, thread_
  std::vector<Driven*> driven_;
  std::vector<std::shared_ptr<Driven>> retired_;  // driven_ has them, too
  std::atomic<int> retired_count_{0};
  SleepLimits sleep_limits_ = default_pace();
  bool stop_ = false;
  std::atomic<std::uint32_t> called_{0};   // futex word
  std::atomic<std::uint32_t> in_line_{0};  // who waits for mutex_
  ServiceThread thread_;
};

}  // namespace gyre::comm
