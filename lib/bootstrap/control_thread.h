// ControlThread: the one thread per process that sleeps in epoll. Everything of lib/bootstrap that
// has a descriptor or a deadline lives on it; other threads only hand it things to do.
//
//   Watch   a descriptor's place in epoll; it ends with the Watch
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gyre::bootstrap {

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

  // Any thread. Runs soon, in order; false (and nothing will run) after stop.
  bool post(std::function<void()> act);
  // Any thread: returns when `act` has run; false after stop.
  bool call(const std::function<void()>& act);
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }

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
  struct Entry {
    int descriptor;
    std::uint32_t events;
    std::shared_ptr<OnEvent> on_event;
  };
  ControlThread() = default;
  Status open();
  void change(std::uint64_t id, std::uint32_t events);
  void unwatch(std::uint64_t id);
  void serve();
  void turn();
  void run_posted();

  FileDescriptor epoll_;
  FileDescriptor bell_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t next_id_ = 1;
  std::vector<std::shared_ptr<void>> retired_;
  Tick tick_;
  std::int64_t due_ns_ = never_ns;
  std::int64_t awake_ns_ = 0;  // when it last had nothing more to do
  std::mutex mutex_;           // of the next two
  std::vector<std::function<void()>> posted_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gyre::bootstrap
