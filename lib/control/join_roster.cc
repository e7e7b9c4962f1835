#include "lib/control/join_roster.h"

#include "lib/control/cause.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::control {

Result<std::uint32_t> JoinRoster::add_process(trust::ProcessIdentity process) {
  for (const auto& known : processes_)
    if (known.process == process.process)
      return Status(Code::RemoteError, fmt::format("the process with pid {} on host {} came twice",
                                                   process.pid, process.host_name));
  processes_.push_back(std::move(process));
  return static_cast<std::uint32_t>(processes_.size() - 1);
}

Status JoinRoster::enter(std::uint32_t slot, int size, int rank, MessageBytes note) {
  if (size_ == 0) {
    size_ = size;
    first_rank_ = rank;
  }
  const auto& newcomer = processes_[slot];
  if (size != size_)
    return Status(
               Code::Mismatch,
               fmt::format("{} joins a communicator of {} ranks, {} joined one of {}",
                           process_text({rank}, newcomer), size,
                           process_text({first_rank_}, processes_[entries_.at(first_rank_).slot]),
                           size_))
        .blame({std::min(rank, first_rank_), std::max(rank, first_rank_)});
  const auto [entry, fresh] = entries_.try_emplace(rank, JoinEntry{slot, std::move(note)});
  if (fresh) return {};
  const auto& earlier = processes_[entry->second.slot];
  return Status(Code::Mismatch,
                fmt::format("rank {} joined twice: pid {} on host {} and pid {} on host {}", rank,
                            earlier.pid, earlier.host_name, newcomer.pid, newcomer.host_name))
      .blame({rank});
}

std::vector<int> JoinRoster::missing() const {
  std::vector<int> ranks;
  int expected = 0;
  for (const auto& [rank, entry] : entries_) {
    for (; expected < rank; ++expected) ranks.push_back(expected);
    expected = rank + 1;
  }
  for (; expected < size_; ++expected) ranks.push_back(expected);
  return ranks;
}

std::vector<int> JoinRoster::ranks_of(std::uint32_t slot) const {
  std::vector<int> ranks;
  for (const auto& [rank, entry] : entries_)
    if (entry.slot == slot) ranks.push_back(rank);
  return ranks;
}

Roster JoinRoster::finish(std::vector<std::uint32_t>* place_of_slot) const {
  constexpr std::uint32_t nowhere = UINT32_MAX;
  place_of_slot->assign(processes_.size(), nowhere);
  Roster roster;
  const auto place = [&](std::uint32_t slot) {
    std::uint32_t& index = (*place_of_slot)[slot];
    if (index == nowhere) {
      index = static_cast<std::uint32_t>(roster.processes.size());
      roster.processes.push_back(processes_[slot]);
    }
    return index;
  };
  place(0);
  for (const auto& [rank, entry] : entries_) {
    roster.process_of_rank.push_back(place(entry.slot));
    roster.notes.push_back(entry.note);
  }
  return roster;
}

}  // namespace gyre::control
