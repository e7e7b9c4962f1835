#include "lib/bootstrap/control_thread.h"

#include "lib/base/clock.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <future>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <system_error>

namespace gyre::bootstrap {
namespace {

constexpr std::uint64_t bell_id = 0;
constexpr int events_most = 64;
// A turn that takes this much longer than it meant to sleep was stopped or starved.
constexpr std::int64_t standstill_ns = 200 * ns_per_ms;

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

// Milliseconds, rounded up, so that a deadline is not slept short of and then spun for.
int timeout_ms(std::int64_t now_ns, std::int64_t due_ns) {
  if (due_ns == never_ns) return -1;
  const std::int64_t left_ms = (due_ns - now_ns + ns_per_ms - 1) / ns_per_ms;
  return static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 3'600'000));
}

}  // namespace

Result<std::shared_ptr<ControlThread>> ControlThread::start() {
  std::shared_ptr<ControlThread> made(new ControlThread);
  GYRE_TRY(made->open());
  const SignalsBlocked blocked;
  try {
    made->thread_ = std::thread([control = made.get()] { control->serve(); });
  } catch (const std::system_error& error) {
    return Status(Code::SystemError, std::string("starting the control thread: ") + error.what());
  }
  pthread_setname_np(made->thread_.native_handle(), "gyre-control");
  return made;
}

Status ControlThread::open() {
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.has_value()) return Status::from_errno("epoll_create1", errno);
  bell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_.has_value()) return Status::from_errno("eventfd", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = bell_id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0)
    return Status::from_errno("epoll_ctl", errno);
  return {};
}

void ControlThread::stop() {
  if (!thread_.joinable()) return;
  post([this] {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  });
  thread_.join();
}

bool ControlThread::post(std::function<void()> act) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    posted_.push_back(std::move(act));
    if (posted_.size() > 1) return true;  // the bell has rung already
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell_.get(), &one, sizeof one);
  return true;
}

bool ControlThread::call(const std::function<void()>& act) {
  if (is_current()) {
    act();
    return true;
  }
  std::promise<void> ran;
  std::future<void> done = ran.get_future();
  if (!post([&] {
        act();
        ran.set_value();
      }))
    return false;
  done.wait();
  return true;
}

Result<ControlThread::Watch> ControlThread::watch(int descriptor, std::uint32_t events,
                                                  OnEvent on_event) {
  const std::uint64_t id = next_id_++;
  epoll_event event{.events = events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    return Status::from_errno("epoll_ctl", errno);
  entries_[id] = {descriptor, events, std::make_shared<OnEvent>(std::move(on_event))};
  return Watch(this, id);
}

void ControlThread::change(std::uint64_t id, std::uint32_t events) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.events == events) return;
  found->second.events = events;
  epoll_event event{.events = events, .data = {.u64 = id}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.descriptor, &event);
}

void ControlThread::unwatch(std::uint64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.descriptor, nullptr);
  entries_.erase(found);
}

void ControlThread::on_tick(Tick tick) {
  tick_ = std::move(tick);
  due_at(0);
}

void ControlThread::due_at(std::int64_t time_ns) { due_ns_ = std::min(due_ns_, time_ns); }

void ControlThread::run_posted() {
  std::vector<std::function<void()>> acts;
  {
    const std::lock_guard lock(mutex_);
    acts.swap(posted_);
  }
  for (const auto& act : acts) act();
}

void ControlThread::serve() {
  awake_ns_ = SystemClock::read();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && posted_.empty()) break;
    }
    turn();
  }
  retired_.clear();
}

void ControlThread::turn() {
  const int sleep_ms = timeout_ms(awake_ns_, due_ns_);
  epoll_event events[events_most];
  const int count = epoll_wait(epoll_.get(), events, events_most, sleep_ms);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;  // a copy: the struct is packed
    if (id == bell_id) {
      std::uint64_t rung = 0;
      [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rung, sizeof rung);
      run_posted();
      continue;
    }
    // An earlier event of this turn may have ended the watch.
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    const auto on_event = found->second.on_event;
    (*on_event)(events[i].events);
  }
  retired_.clear();
  std::int64_t now = SystemClock::read();
  // What the peers said meanwhile has been read above if there was little of it; their silence is
  // judged only by the time in which this process could have listened.
  const std::int64_t overslept =
      sleep_ms < 0 ? 0 : now - awake_ns_ - sleep_ms * ns_per_ms - standstill_ns;
  awake_ns_ = now;
  if (!tick_ || (now < due_ns_ && overslept <= 0)) return;
  due_ns_ = never_ns;
  due_at(tick_(now, std::max<std::int64_t>(overslept, 0)));
  retired_.clear();
}

}  // namespace gyre::bootstrap
