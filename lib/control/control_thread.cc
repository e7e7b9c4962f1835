#include "lib/control/control_thread.h"

#include "lib/base/caught.h"
#include "lib/base/clock.h"
#include "lib/base/descriptor_mark.h"
#include "lib/base/thread_start.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace gyre::control {
namespace {

constexpr std::uint64_t bell_id = 0;
constexpr int max_events = 64;
// A turn that takes this much longer than it meant to sleep was stopped or starved.
constexpr std::int64_t standstill_ns = 200 * ns_per_ms;
// A descriptor that is closed ends no sleep in epoll: so late does it notice at the latest.
constexpr std::int64_t max_sleep_ns = ns_per_s;
constexpr std::int64_t mark_period_ns = 250 * ns_per_ms;
// After a tick for which there was no memory.
constexpr std::int64_t retry_ns = 10 * ns_per_ms;

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
  GYRE_TRY(set_descriptor_mark());
  std::shared_ptr<ControlThread> made(new ControlThread);
  GYRE_TRY(made->open());
  const SignalsBlocked blocked;
  GYRE_TRY(
      start_thread(made->thread_, "gyre-control", [control = made.get()] { control->serve(); }));
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
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ring();
  thread_.join();
}

// Without a bell of its own the thread looks when its sleep is over.
void ControlThread::ring() {
  if (!descriptor_mark_stands()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(bell_.get(), &one, sizeof one);
}

bool ControlThread::post(std::function<void()> act) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    posted_.push_back(std::move(act));
    if (posted_.size() > 1) return true;  // the bell has rung already
  }
  ring();
  return true;
}

bool ControlThread::call(const std::function<void()>& act) {
  if (is_current()) {
    act();
    return true;
  }
  const auto mine = std::make_shared<PendingCall>();
  const auto run = [this, mine, &act] {
    std::exception_ptr thrown;
    try {
      act();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    mine->thrown = thrown;
    mine->is_over = true;
    turned_.notify_all();
  };
  if (!post(run)) return false;
  std::unique_lock lock(mutex_);
  turned_.wait(lock, [&] { return mine->is_over || ended_; });
  if (!mine->is_over) return false;
  if (mine->thrown) std::rethrow_exception(mine->thrown);
  return true;
}

Status ControlThread::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_.ok() ? invalid_usage("the control plane has ended") : verdict_;
}

Result<ControlThread::Watch> ControlThread::watch(int descriptor, std::uint32_t events,
                                                  OnEvent on_event) {
  const std::uint64_t id = next_id_++;
  entries_[id] = {descriptor, events, std::make_shared<OnEvent>(std::move(on_event))};
  epoll_event event{.events = events, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return Watch(this, id);
  const int error = errno;
  entries_.erase(id);
  return Status::from_errno("epoll_ctl", error);
}

void ControlThread::change(std::uint64_t id, std::uint32_t events) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.events == events) return;
  if (!descriptor_mark_stands()) return;
  found->second.events = events;
  epoll_event event{.events = events, .data = {.u64 = id}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.descriptor, &event);
}

void ControlThread::unwatch(std::uint64_t id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  if (descriptor_mark_stands())
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.descriptor, nullptr);
  entries_.erase(found);
}

void ControlThread::on_tick(Tick tick) {
  tick_ = std::move(tick);
  due_at(0);
}

void ControlThread::due_at(std::int64_t time_ns) { due_ns_ = std::min(due_ns_, time_ns); }

// What was going on is left as it is; whoever hears of it ends what may be spoilt.
template <typename Act>
void ControlThread::attempt(Act&& act) {
  if (const Status thrown = thrown_by(act); !thrown.ok()) tell(thrown);
  retired_.clear();
}

void ControlThread::tell(const Status& why) {
  if (!hear_) return;
  try {
    hear_(why);
  } catch (const std::exception&) {  // it has told those whom it could
  }
}

void ControlThread::run_posted() {
  std::vector<std::function<void()>> acts;
  {
    const std::lock_guard lock(mutex_);
    acts.swap(posted_);
  }
  for (const auto& act : acts) attempt(act);
}

bool ControlThread::is_over() {
  const std::lock_guard lock(mutex_);
  return stop_ && posted_.empty();
}

void ControlThread::serve() {
  awake_ns_ = SystemClock::read();
  Status why;
  while (why.ok() && !is_over()) why = turn();
  end(why);
}

// Who waits for a call learns that it never runs.
void ControlThread::end(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    verdict_ = why;
  }
  if (!why.ok()) tell(why);
  run_posted();
  retired_.clear();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  turned_.notify_all();
}

void ControlThread::on_bell() {
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rung, sizeof rung);
  run_posted();
}

void ControlThread::on_entry(std::uint64_t id, std::uint32_t events) {
  // An earlier event of this turn may have ended the watch.
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  const auto on_event = found->second.on_event;
  attempt([&] { (*on_event)(events); });
}

void ControlThread::tick(std::int64_t overslept_ns) {
  due_ns_ = never_ns;
  std::int64_t next_ns = awake_ns_ + retry_ns;
  attempt([&] { next_ns = tick_(awake_ns_, std::max<std::int64_t>(overslept_ns, 0)); });
  due_at(next_ns);
}

// Not ok: it cannot go on.
Status ControlThread::turn() {
  const int sleep_ms = timeout_ms(awake_ns_, std::min(due_ns_, awake_ns_ + max_sleep_ns));
  epoll_event events[max_events];
  const int count = epoll_wait(epoll_.get(), events, max_events, sleep_ms);
  const int error = count < 0 ? errno : 0;
  const std::int64_t woken_ns = SystemClock::read();
  if (error != 0 || woken_ns - marked_ns_ >= mark_period_ns) {
    if (!descriptor_mark_stands()) return descriptors_are_gone();
    marked_ns_ = woken_ns;
  }
  if (error != 0 && error != EINTR) return Status::from_errno("epoll_wait", error);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;  // copies: the struct is packed
    const std::uint32_t what = events[i].events;
    if (id == bell_id)
      on_bell();
    else
      on_entry(id, what);
  }
  const std::int64_t now = SystemClock::read();
  // What the peers said meanwhile has been read above if there was little of it; their silence is
  // judged only by the time in which this process could have listened.
  const std::int64_t overslept = now - awake_ns_ - sleep_ms * ns_per_ms - standstill_ns;
  awake_ns_ = now;
  if (tick_ && (now >= due_ns_ || overslept > 0)) tick(overslept);
  return {};
}

}  // namespace gyre::control
