#include "lib/control/departures.h"

#include "lib/control/messages.h"
#include "lib/control/tree.h"

#include <algorithm>

namespace gyre::control {

Departures::Departures(const Roster& roster)
    : left_(roster.process_of_rank.size()),
      process_of_rank_(roster.process_of_rank),
      staying_(roster.processes.size()) {
  for (const std::uint32_t process : process_of_rank_) ++staying_[process];
  root_has_ranks_ = staying_[0] > 0;
  if (!root_has_ranks_) staying_[0] = 1;
}

bool Departures::note(std::uint32_t rank) {
  const std::uint32_t process = rank == no_rank ? 0 : process_of_rank_[rank];
  if (rank == no_rank ? root_has_ranks_ || is_gone(0) : left_[rank]) return false;
  if (rank != no_rank) {
    left_[rank] = true;
    ++left_count_;
  }
  any_gone_ |= --staying_[process] == 0;
  while (top_ < staying_.size() && is_gone(top_)) ++top_;
  return true;
}

std::optional<std::uint32_t> Departures::parent(std::uint32_t process) const {
  for (std::uint32_t above = process; above != 0;) {
    above = tree_parent(above);
    if (!is_gone(above)) return above;
  }
  return top_ < process ? std::optional(top_) : std::nullopt;
}

std::vector<std::uint32_t> Departures::successors(std::uint32_t process) const {
  std::vector<std::uint32_t> found, gone{process};
  const auto processes = static_cast<std::uint32_t>(staying_.size());
  while (!gone.empty()) {
    const std::uint32_t above = gone.back();
    gone.pop_back();
    const std::uint32_t first = tree_first_child(above);
    for (std::uint32_t i = 0; i < tree_children(above, processes); ++i)
      (is_gone(first + i) ? gone : found).push_back(first + i);
  }
  return found;
}

std::vector<std::uint32_t> Departures::between(std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> way;
  for (std::uint32_t at = from; at != to;) {
    at = tree_next(at, to);
    if (at != to) way.push_back(at);
  }
  return way;
}

bool Departures::way_stands(std::uint32_t from, std::uint32_t to) const {
  return std::ranges::none_of(between(from, to),
                              [this](std::uint32_t process) { return is_gone(process); });
}

// A bit a rank, and one for the root.
std::vector<std::uint8_t> Departures::encode() const {
  std::vector<std::uint8_t> bytes(left_.size() / 8 + 1);
  bool any = !root_has_ranks_ && is_gone(0);
  if (any) bytes[left_.size() / 8] |= static_cast<std::uint8_t>(1U << left_.size() % 8);
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    if (!left_[rank]) continue;
    bytes[rank / 8] |= static_cast<std::uint8_t>(1U << rank % 8);
    any = true;
  }
  if (!any) bytes.clear();
  return bytes;
}

std::optional<std::vector<std::uint32_t>> Departures::decode(
    std::span<const std::uint8_t> bytes) const {
  std::vector<std::uint32_t> ranks;
  if (bytes.empty()) return ranks;
  if (bytes.size() != left_.size() / 8 + 1) return std::nullopt;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    if ((bytes[bit / 8] >> bit % 8 & 1) == 0) continue;
    if (bit > left_.size()) return std::nullopt;
    ranks.push_back(bit < left_.size() ? static_cast<std::uint32_t>(bit) : no_rank);
  }
  return ranks;
}

}  // namespace gyre::control
