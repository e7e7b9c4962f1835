// Member: the Membership that comm/ holds: what the control thread found out, readable from any
// thread, and wishes handed to the control thread.
#pragma once

#include "lib/bootstrap/control.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace gyre::bootstrap {

class Member final : public Membership {
 public:
  // What the control thread does for a member; each posts and returns.
  struct Wishes {
    std::function<void(int from, int to, std::uint64_t key, Letter)> send;
    std::function<void(int rank, Status why)> abort;
    std::function<void(int rank)> leave;
  };
  Member(int rank, int size, Wishes wishes)
      : rank_(rank), size_(size), wishes_(std::move(wishes)) {}
  ~Member() override { leave(); }

  State state() const override { return state_.load(std::memory_order_acquire); }
  bool failed() const override { return state_.load(std::memory_order_relaxed) == State::failed; }
  Status failure() const override;
  std::atomic<std::uint32_t>& changed() override { return changed_; }
  const Roster& roster() const override { return *roster_; }
  Status send(int to_rank, std::uint64_t key, Letter letter) override;
  std::optional<Letter> receive(int from_rank, std::uint64_t key) override;
  void abort(Status why) override;
  void leave() override;

  // The control thread's side.
  int rank() const { return rank_; }
  void join(std::shared_ptr<const Roster> roster);
  void fail(const Status& why);
  void deliver(int from, std::uint64_t key, Letter letter);

 private:
  void announce();

  const int rank_, size_;
  const Wishes wishes_;
  std::atomic<State> state_{State::joining};
  std::atomic<std::uint32_t> changed_{0};
  std::atomic<bool> left_{false};
  std::shared_ptr<const Roster> roster_;  // set before state_ becomes joined
  mutable std::mutex mutex_;              // of the next two
  Status failure_;
  std::map<std::pair<int, std::uint64_t>, std::deque<Letter>> letters_;
};

}  // namespace gyre::bootstrap
