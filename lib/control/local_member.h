// LocalMember: the Membership that comm/ holds. Any thread can read what the control thread found
// out. Requests are handed to the control thread.
//
//   JoinedGroup   all members of a communicator, once they are together
#pragma once

#include "lib/base/wait.h"
#include "lib/control/control_thread.h"
#include "lib/control/membership.h"

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <unordered_map>

namespace gyre::control {

class LocalMember;

// What a member asks of its job, on the control thread.
class MemberOwner {
 public:
  virtual void send_rank_message(int from, int to, std::uint64_t key,
                                 const MessageBytes& rank_message) = 0;
  // That rank aborts.
  virtual void abort(int rank, Status why) = 0;
  // `on_heard` is called once, when the process may end without being missed.
  virtual void leave(const LocalMember& member, std::function<void()> on_heard) = 0;

 protected:
  ~MemberOwner() = default;
};

struct JoinedGroup {
  Roster roster;
  std::unordered_map<int, std::weak_ptr<LocalMember>> here;  // the ranks of this process
  // By rank; written by the control thread alone.
  mutable std::vector<std::atomic<bool>> left;
};

class LocalMember final : public Membership, public std::enable_shared_from_this<LocalMember> {
 public:
  LocalMember(std::shared_ptr<ControlThread> thread,
              std::shared_ptr<const trust::ProcessIdentity> self, int rank, int size);

  State state() const override { return state_.load(std::memory_order_acquire); }
  Status failure() const override;
  std::atomic<std::uint32_t>& changed() override { return changed_; }
  const Roster& roster() const override;
  const trust::ProcessIdentity& self() const override { return *self_; }
  Status send(int to_rank, std::uint64_t key, MessageBytes rank_message) override;
  std::optional<MessageBytes> receive(int from_rank, std::uint64_t key) override;
  void listen(std::uint64_t key, Hear hear) override;
  bool has_left(int rank) const override;
  void abort(Status why) override;
  void leave() override;

  int rank() const { return rank_; }
  // The control thread's side. `set_job` tells the member whose it is, before anything else.
  void set_job(MemberOwner* job) { job_ = job; }
  void become_joined(std::shared_ptr<const JoinedGroup> group);
  void become_failed(const Status& why);
  // From any thread; false when too much lies unread.
  bool deliver(int from, std::uint64_t key, MessageBytes rank_message);

 private:
  Status check_usable() const;
  bool keep_failure(const Status& why);  // the first one
  // Of this rank's threads, who may end the process because of it: to be called once the others
  // have been told.
  void show_failure();
  void announce();
  // The control thread passes it on, to nobody if this rank has left, and `done` is called once it
  // is said. What it returns is over then; not valid: it will not be said.
  using LastWord = std::function<void(MemberOwner*, const std::function<void()>& done)>;
  std::future<void> say_last(LastWord word);
  // False: this is the control thread, which says it when it has done what it is at.
  bool await_said(const std::future<void>& word, std::chrono::milliseconds most) const;

  const std::shared_ptr<ControlThread> thread_;
  const std::shared_ptr<const trust::ProcessIdentity> self_;
  const int rank_, size_;
  const pid_t process_;         // sessions do not survive a fork
  MemberOwner* job_ = nullptr;  // control thread only
  std::atomic<State> state_{State::joining};
  std::atomic<std::uint32_t> changed_{0};
  std::shared_ptr<const JoinedGroup> group_;           // control thread only
  std::atomic<const JoinedGroup*> together_{nullptr};  // the same for all threads, once joined
  mutable std::mutex mutex_;                           // of the rest
  Status failure_;
  std::map<std::pair<int, std::uint64_t>, std::deque<MessageBytes>> rank_messages_;
  std::size_t unread_bytes_ = 0;
  std::map<std::uint64_t, Hear> hears_;  // by key
};

}  // namespace gyre::control
