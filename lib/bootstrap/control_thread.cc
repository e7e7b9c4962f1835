#include "lib/bootstrap/control_thread.h"

#include "lib/base/clock.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace gyre::bootstrap {
namespace {

constexpr int tick_ms = 100;
constexpr std::uint64_t bell_id = 0;

// The application's signal handlers run on its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Result<std::unique_ptr<ControlThread>> ControlThread::start() {
  std::unique_ptr<ControlThread> made(new ControlThread);
  made->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!made->epoll_.has_value()) return Status::from_errno("epoll_create1", errno);
  made->bell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->bell_.has_value()) return Status::from_errno("eventfd", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = bell_id}};
  if (epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, made->bell_.get(), &event) != 0)
    return Status::from_errno("epoll_ctl", errno);
  const SignalsBlocked blocked;
  try {
    made->thread_ = std::thread([control = made.get()] { control->serve(); });
  } catch (const std::system_error& error) {
    return Status(Code::SystemError, std::string("starting the control thread: ") + error.what());
  }
  pthread_setname_np(made->thread_.native_handle(), "gyre-control");
  return made;
}

ControlThread::~ControlThread() {
  if (!thread_.joinable()) return;
  post([this] {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  });
  thread_.join();
}

void ControlThread::post(std::function<void()> act) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(act));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell_.get(), &one, sizeof one);
}

void ControlThread::call(const std::function<void()>& act) {
  if (std::this_thread::get_id() == thread_.get_id()) return act();
  std::mutex mutex;
  std::condition_variable ran;
  bool done = false;
  post([&] {
    act();
    const std::lock_guard lock(mutex);
    done = true;
    ran.notify_one();
  });
  std::unique_lock lock(mutex);
  ran.wait(lock, [&] { return done; });
}

Result<ControlThread::WatchId> ControlThread::watch(int descriptor, std::uint32_t events,
                                                    std::function<void(std::uint32_t)> on_event) {
  const WatchId id = next_id_++;
  epoll_event event{.events = events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    return Status::from_errno("epoll_ctl", errno);
  watches_[id] = {descriptor,
                  std::make_shared<std::function<void(std::uint32_t)>>(std::move(on_event))};
  return id;
}

void ControlThread::change(WatchId id, std::uint32_t events) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  epoll_event event{.events = events, .data = {.u64 = id}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.descriptor, &event);
}

void ControlThread::unwatch(WatchId id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.descriptor, nullptr);
  watches_.erase(found);
}

void ControlThread::run_posted() {
  std::vector<std::function<void()>> acts;
  {
    const std::lock_guard lock(mutex_);
    acts.swap(posted_);
  }
  for (const auto& act : acts) act();
}

void ControlThread::serve() {
  std::int64_t last_tick_ns = SystemClock::read();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && posted_.empty()) return;
    }
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, tick_ms);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == bell_id) {
        std::uint64_t rung = 0;
        [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rung, sizeof rung);
        continue;
      }
      // An earlier event of this turn may have ended the watch.
      const auto found = watches_.find(events[i].data.u64);
      if (found == watches_.end()) continue;
      const auto on_event = found->second.on_event;
      (*on_event)(events[i].events);
    }
    run_posted();
    const std::int64_t now = SystemClock::read();
    if (now - last_tick_ns < tick_ms * ns_per_ms) continue;
    last_tick_ns = now;
    if (tick_) tick_(now);
  }
}

}  // namespace gyre::bootstrap
