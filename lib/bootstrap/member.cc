#include "lib/bootstrap/member.h"

#include "lib/base/wait.h"

#include <fmt/format.h>

namespace gyre::bootstrap {
namespace {
constexpr std::size_t letter_most = 64 << 10;
}

Status Member::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status Member::send(int to_rank, std::uint64_t key, Letter letter) {
  if (to_rank < 0 || to_rank >= size_)
    return internal_error(fmt::format("a letter to rank {} of {}", to_rank, size_));
  if (letter.size() > letter_most)
    return internal_error(fmt::format("a letter of {} bytes", letter.size()));
  wishes_.send(rank_, to_rank, key, std::move(letter));
  return {};
}

std::optional<Letter> Member::receive(int from_rank, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = letters_.find({from_rank, key});
  if (found == letters_.end()) return std::nullopt;
  Letter letter = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) letters_.erase(found);
  return letter;
}

void Member::abort(Status why) { wishes_.abort(rank_, std::move(why)); }

void Member::leave() {
  if (!left_.exchange(true)) wishes_.leave(rank_);
}

void Member::join(std::shared_ptr<const Roster> roster) {
  roster_ = std::move(roster);
  State expected = State::joining;
  // Pairs with the acquire in state().
  state_.compare_exchange_strong(expected, State::joined, std::memory_order_release);
  announce();
}

void Member::fail(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
  }
  state_.store(State::failed, std::memory_order_release);
  announce();
}

void Member::deliver(int from, std::uint64_t key, Letter letter) {
  {
    const std::lock_guard lock(mutex_);
    letters_[{from, key}].push_back(std::move(letter));
  }
  announce();
}

void Member::announce() {
  changed_.fetch_add(1, std::memory_order_release);
  wake_futex(&changed_);
}

}  // namespace gyre::bootstrap
