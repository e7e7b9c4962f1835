// Departures: which ranks of a communicator that has joined have left, which processes are gone
// with them, and the tree of the processes that stay.
//
//   gone   a process all of whose ranks have left; it may still run, but needs nobody
//   top    the process that stays and has the lowest number: the root, while that stays
//
// If a process's parent is gone, its nearest ancestor that stays replaces the parent. If all
// ancestors are gone, the top does. A parent's number is lower than its child's, so the processes
// that stay always form one tree. Processes that know of the same departures compute the same tree.
#pragma once

#include "lib/control/membership.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gyre::control {

class Departures {
 public:
  Departures() = default;
  explicit Departures(const Roster& roster);

  // False if that was known. `no_rank` (messages.h): the root's process, which had none.
  bool note(std::uint32_t rank);
  bool has_left(std::size_t rank) const { return left_[rank]; }
  bool all_left() const { return left_count_ == left_.size(); }
  bool is_gone(std::uint32_t process) const { return staying_[process] == 0; }
  bool any_gone() const { return any_gone_; }
  // Nobody, for the top.
  std::optional<std::uint32_t> parent(std::uint32_t process) const;
  // Those who stay and have no ancestor that stays below `process`, which is gone.
  std::vector<std::uint32_t> successors(std::uint32_t process) const;
  // Whether all that lie between two processes in the whole tree stay.
  bool way_stands(std::uint32_t from, std::uint32_t to) const;
  // The whole tree's processes between the two.
  static std::vector<std::uint32_t> between(std::uint32_t from, std::uint32_t to);

  // All that is known, for another process of the communicator; empty: nobody has left.
  std::vector<std::uint8_t> encode() const;
  // The ranks that it tells of, those known here too; nothing if it is malformed.
  std::optional<std::vector<std::uint32_t>> decode(std::span<const std::uint8_t> bytes) const;

 private:
  std::vector<bool> left_;  // by rank
  std::size_t left_count_ = 0;
  std::vector<std::uint32_t> process_of_rank_;
  std::vector<std::uint32_t> staying_;  // by process: its ranks that have not left; a root without
                                        // ranks counts for one
  bool root_has_ranks_ = true;
  bool any_gone_ = false;
  std::uint32_t top_ = 0;
};

}  // namespace gyre::control
