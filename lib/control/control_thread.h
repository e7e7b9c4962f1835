// ControlThread: the one thread per process that sleeps in epoll. Everything of lib/control that
// has a descriptor or a deadline lives on it. Other threads only hand it things to do. If memory
// runs out during a task, it reports that and continues. If the program has closed its descriptors,
// it reports that and ends.
//
//   Watch   a descriptor's entry in epoll; it ends with the Watch
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gyre::control {

inline constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();

class ControlThread {
 public:
  using OnEvent = std::function<void(std::uint32_t events)>;

  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept
        : thread_(std::exchange(other.thread_, nullptr)), id_(other.id_) {}
    Watch& operator=(Watch&& other) noexcept {
      reset();
      thread_ = std::exchange(other.thread_, nullptr);
      id_ = other.id_;
      return *this;
    }
    ~Watch() { reset(); }
    void reset() {
      if (thread_ != nullptr) std::exchange(thread_, nullptr)->unwatch(id_);
    }
    void change(std::uint32_t events) {
      if (thread_ != nullptr) thread_->change(id_, events);
    }

   private:
    friend class ControlThread;
    Watch(ControlThread* thread, std::uint64_t id) : thread_(thread), id_(id) {}
    ControlThread* thread_ = nullptr;
    std::uint64_t id_ = 0;
  };

  static Result<std::shared_ptr<ControlThread>> start();
  ~ControlThread() { stop(); }
  // Runs what was handed over, then ends. Idempotent; not from the thread itself.
  void stop();

  // Any thread. Runs soon, in order; false (and nothing will run) once the thread is to end.
  bool post(std::function<void()> act);
  // Any thread: returns when `act` has run, and throws what it threw. False: it never will, since
  // the thread ends; `verdict` says why.
  bool call(const std::function<void()>& act);
  Status verdict() const;
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }

  // `hear` gets what went wrong on the thread: no memory for what was going on, which is as it was
  // left then, or (the thread ends) no descriptors. Before anything else.
  using Hear = std::function<void(const Status&)>;
  void on_trouble(Hear hear) { hear_ = std::move(hear); }

  // This thread only from here. `on_event` gets epoll's events; the descriptor outlives the Watch.
  Result<Watch> watch(int descriptor, std::uint32_t events, OnEvent on_event);
  // `tick(now, overslept)` is called at due times and answers when it wants to be called next.
  // `overslept` is how much longer than meant the process stood still: it was stopped, or starved.
  using Tick = std::function<std::int64_t(std::int64_t now_ns, std::int64_t overslept_ns)>;
  void on_tick(Tick tick);
  // There is something to do at that time, perhaps before the next tick.
  void due_at(std::int64_t time_ns);
  // Destroys it after the event at hand, which may still be running in it.
  template <typename T>
  void retire(std::unique_ptr<T> object) {
    if (object != nullptr) retired_.push_back(std::shared_ptr<T>(std::move(object)));
  }

 private:
  struct WatchedDescriptor {
    int descriptor;
    std::uint32_t events;
    std::shared_ptr<OnEvent> on_event;
  };
  ControlThread() = default;
  Status open();
  void change(std::uint64_t id, std::uint32_t events);
  void unwatch(std::uint64_t id);
  // What somebody waits for.
  struct PendingCall {
    bool is_over = false;
    std::exception_ptr thrown = nullptr;
  };
  void ring();
  void serve();
  bool is_over();
  Status turn();
  void on_bell();
  void on_entry(std::uint64_t id, std::uint32_t events);
  void tick(std::int64_t overslept_ns);
  void run_posted();
  template <typename Act>
  void attempt(Act&& act);
  void tell(const Status& why);
  void end(const Status& why);

  FileDescriptor epoll_;
  FileDescriptor bell_;
  std::map<std::uint64_t, WatchedDescriptor> entries_;
  std::uint64_t next_id_ = 1;
  std::vector<std::shared_ptr<void>> retired_;
  Tick tick_;
  std::int64_t due_ns_ = never_ns;
  std::int64_t awake_ns_ = 0;   // when it last had nothing more to do
  std::int64_t marked_ns_ = 0;  // when its descriptors were last known to be its own
  Hear hear_;
  mutable std::mutex mutex_;  // of the next five
  std::condition_variable turned_;
  std::vector<std::function<void()>> posted_;
  bool stop_ = false, ended_ = false;
  Status verdict_;
  std::thread thread_;
};

}  // namespace gyre::control
