#include "lib/control/local_member.h"

#include "lib/control/messages.h"

#include <fmt/core.h>

#include <chrono>
#include <future>
#include <new>
#include <thread>
#include <unistd.h>

namespace gyre::control {
namespace {

constexpr std::size_t max_unread_bytes = 64u << 20;
constexpr std::size_t rank_message_cost_bytes = 64;  // of keeping even an empty one
// A process that ended before its last word is with the kernel, or before somebody has heard that
// it leaves, would be taken for dead, or for the cause of what it reports. As a rule that takes
// microseconds.
constexpr std::chrono::milliseconds max_abort{100}, max_leave{1000};

// Nobody says it in its place: where there is no memory for it, it is tried again for a moment.
template <typename Say>
std::future<void> insist(const Say& say) {
  constexpr int max_tries = 100;
  for (int tries = 0; tries < max_tries; ++tries) {
    try {
      return say();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return {};
}

}  // namespace

LocalMember::LocalMember(std::shared_ptr<ControlThread> thread,
                         std::shared_ptr<const trust::ProcessIdentity> self, int rank, int size)
    : thread_(std::move(thread)),
      self_(std::move(self)),
      rank_(rank),
      size_(size),
      process_(getpid()) {}

Status LocalMember::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

const Roster& LocalMember::roster() const {
  static const Roster& nobody = *new Roster;  // for as long as any thread runs
  // Pairs with the release in become_joined.
  const JoinedGroup* group = together_.load(std::memory_order_acquire);
  return group != nullptr ? group->roster : nobody;
}

Status LocalMember::check_usable() const {
  if (getpid() != process_)
    return invalid_usage(
        "a communicator does not survive fork: use it in the parent, or start "
        "anew in the child");
  switch (state()) {
    case State::joined:
      return {};
    case State::failed:
      return failure();
    case State::left:
      return invalid_usage(fmt::format("rank {} has left", rank_));
    case State::joining:
      break;
  }
  return invalid_usage(fmt::format("rank {} has not joined yet", rank_));
}

Status LocalMember::send(int to_rank, std::uint64_t key, MessageBytes rank_message) {
  if (to_rank < 0 || to_rank >= size_)
    return invalid_argument(fmt::format("a message to rank {} of {}", to_rank, size_));
  if (rank_message.size() > max_rank_message_bytes)
    return invalid_argument(
        fmt::format("a message of {} bytes is longer than 64 KiB", rank_message.size()));
  GYRE_TRY(check_usable());
  const auto& here = together_.load(std::memory_order_acquire)->here;
  if (const auto found = here.find(to_rank); found != here.end()) {
    const std::shared_ptr<LocalMember> target = found->second.lock();
    if (target == nullptr || target->deliver(rank_, key, std::move(rank_message))) return {};
    return invalid_usage(fmt::format("rank {} does not read its messages", to_rank));
  }
  const bool posted =
      thread_->post([self = shared_from_this(), to_rank, key, text = std::move(rank_message)] {
        if (self->job_ != nullptr) self->job_->send_rank_message(self->rank_, to_rank, key, text);
      });
  return posted ? Status() : invalid_usage("the control plane has ended");
}

std::optional<MessageBytes> LocalMember::receive(int from_rank, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = rank_messages_.find({from_rank, key});
  if (found == rank_messages_.end()) return std::nullopt;
  MessageBytes rank_message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) rank_messages_.erase(found);
  unread_bytes_ -= rank_message.size() + rank_message_cost_bytes;
  return rank_message;
}

std::future<void> LocalMember::say_last(LastWord word) {
  const auto said = std::make_shared<std::promise<void>>();
  std::future<void> over = said->get_future();
  const bool posted = thread_->post([self = shared_from_this(), word = std::move(word), said] {
    word(self->job_, [said] { said->set_value(); });
  });
  return posted ? std::move(over) : std::future<void>();
}

bool LocalMember::await_said(const std::future<void>& word, std::chrono::milliseconds most) const {
  if (!word.valid()) return true;
  if (thread_->is_current()) return false;
  word.wait_for(most);
  return true;
}

// This rank's own threads see the failure once the others have been told: they may leave, or end
// the process, because of it, and the others would hear of that first.
void LocalMember::abort(Status why) {
  if (getpid() != process_ || failed()) return;
  if (why.ok()) why = Status(Code::Aborted, fmt::format("rank {} aborted", rank_));
  if (why.culprits().empty()) why = std::move(why).blame({rank_});
  (void)keep_failure(why);
  const auto said = insist([&] {
    return say_last([this, why](MemberOwner* job, const std::function<void()>& done) {
      if (job != nullptr) job->abort(rank_, why);
      show_failure();
      done();
    });
  });
  if (await_said(said, max_abort)) show_failure();
}

void LocalMember::leave() {
  if (getpid() != process_) return;
  if (state_.exchange(State::left, std::memory_order_acq_rel) == State::left) return;
  announce();
  const auto heard = insist([this] {
    return say_last([this](MemberOwner* job, const std::function<void()>& done) {
      if (job == nullptr) return done();
      job->leave(*this, done);
    });
  });
  (void)await_said(heard, max_leave);
}

void LocalMember::become_joined(std::shared_ptr<const JoinedGroup> group) {
  group_ = std::move(group);
  together_.store(group_.get(), std::memory_order_release);
  State expected = State::joining;
  // Pairs with the acquire in state().
  state_.compare_exchange_strong(expected, State::joined, std::memory_order_release);
  announce();
}

bool LocalMember::keep_failure(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return false;
  failure_ = why;
  return true;
}

void LocalMember::show_failure() {
  if (failed_.exchange(true, std::memory_order_acq_rel)) return;
  State expected = state_.load(std::memory_order_relaxed);
  while (expected != State::left &&
         !state_.compare_exchange_weak(expected, State::failed, std::memory_order_release))
    continue;
  announce();
}

void LocalMember::become_failed(const Status& why) {
  (void)keep_failure(why);
  show_failure();
}

void LocalMember::listen(std::uint64_t key, Hear hear) {
  const std::lock_guard lock(mutex_);
  hears_[key] = std::move(hear);
}

bool LocalMember::has_left(int rank) const {
  const JoinedGroup* group = together_.load(std::memory_order_acquire);
  if (group == nullptr || rank < 0 || rank >= size_) return false;
  return group->left[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
}

bool LocalMember::deliver(int from, std::uint64_t key, MessageBytes rank_message) {
  if (state() == State::left) return true;  // nobody will read it
  std::unique_lock lock(mutex_);
  if (const auto found = hears_.find(key); found != hears_.end()) {
    const Hear hear = found->second;
    lock.unlock();
    if (auto verdict = hear(from, rank_message)) abort(std::move(*verdict));
    return true;
  }
  lock.unlock();
  {
    const std::lock_guard guard(mutex_);
    if (unread_bytes_ + rank_message.size() > max_unread_bytes) return false;
    unread_bytes_ += rank_message.size() + rank_message_cost_bytes;
    rank_messages_[{from, key}].push_back(std::move(rank_message));
  }
  announce();
  return true;
}

void LocalMember::announce() {
  changed_.fetch_add(1, std::memory_order_release);
  wake_futex(&changed_);
}

}  // namespace gyre::control
