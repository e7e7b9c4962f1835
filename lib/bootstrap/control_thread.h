// ControlThread: the one thread per process that sleeps in epoll. Everything of lib/bootstrap that
// has a descriptor or a deadline lives on it; other threads only hand it things to do.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gyre::bootstrap {

class ControlThread {
 public:
  static Result<std::unique_ptr<ControlThread>> start();
  ~ControlThread();  // runs what was handed over, then ends

  // Any thread. Runs soon, in order.
  void post(std::function<void()> act);
  // Any thread but this one: returns when `act` has run.
  void call(const std::function<void()>& act);

  // This thread only from here. `on_event` gets epoll's events.
  using WatchId = std::uint64_t;
  Result<WatchId> watch(int descriptor, std::uint32_t events,
                        std::function<void(std::uint32_t)> on_event);
  void change(WatchId id, std::uint32_t events);
  void unwatch(WatchId id);
  // Called about ten times a second with the time: for deadlines, which are all longer.
  void on_tick(std::function<void(std::int64_t now_ns)> act) { tick_ = std::move(act); }

 private:
  struct Watch {
    int descriptor;
    std::shared_ptr<std::function<void(std::uint32_t)>> on_event;
  };
  ControlThread() = default;
  void serve();
  void run_posted();

  FileDescriptor epoll_;
  FileDescriptor bell_;
  std::map<WatchId, Watch> watches_;
  WatchId next_id_ = 1;
  std::function<void(std::int64_t)> tick_;
  std::mutex mutex_;  // of the next two
  std::vector<std::function<void()>> posted_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gyre::bootstrap
