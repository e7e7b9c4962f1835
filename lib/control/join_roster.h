// JoinRoster: the root's list of the ranks that have come. It reports contradictions (two sizes,
// one rank twice) and missing ranks, and finally becomes the roster. It knows no sockets.
//
//   slot   a process, in the order of arrival; the root's is 0
#pragma once

#include "lib/base/status.h"
#include "lib/control/membership.h"

#include <cstdint>
#include <map>
#include <vector>

namespace gyre::control {

class JoinRoster {
 public:
  explicit JoinRoster(trust::ProcessIdentity root) { processes_.push_back(std::move(root)); }

  // A process that is there already is an error: one session each.
  Result<std::uint32_t> add_process(trust::ProcessIdentity process);
  // The error blames both ranks that do not fit together.
  Status enter(std::uint32_t slot, int size, int rank, MessageBytes note);

  int size() const { return size_; }  // 0: nobody has come
  bool complete() const { return size_ > 0 && static_cast<int>(entries_.size()) == size_; }
  std::vector<int> missing() const;
  std::vector<int> ranks_of(std::uint32_t slot) const;
  const trust::ProcessIdentity& process(std::uint32_t slot) const { return processes_[slot]; }

  // Processes in the order of their lowest rank, the root's first, whatever the order of arrival:
  // the same job gets the same roster every time. `place_of_slot` says where each went.
  Roster finish(std::vector<std::uint32_t>* place_of_slot) const;

 private:
  struct JoinEntry {
    std::uint32_t slot;
    MessageBytes note;
  };
  std::vector<trust::ProcessIdentity> processes_;
  std::map<int, JoinEntry> entries_;  // by rank
  int size_ = 0;
  int first_rank_ = 0;  // whose size it is
};

}  // namespace gyre::control
