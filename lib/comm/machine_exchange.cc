#include "lib/comm/machine_exchange.h"

#include "lib/base/clock.h"
#include "lib/comm/join_info.h"
#include "lib/links/message_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {
namespace {

// Each goes to all ranks that have another one.
constexpr std::size_t max_different_machines = 16;

constexpr std::uint64_t outline_key = message_key(MessageTopic::machine);

}  // namespace

MachineExchange::MachineExchange(const RankLayout& layout, control::Membership& membership,
                                 int rank, std::optional<OutlinedMachine> own,
                                 std::int64_t patience_ns)
    : layout_(layout),
      membership_(membership),
      rank_(rank),
      own_(std::move(own)),
      patience_ns_(patience_ns) {
  objection_ = find_machines();
}

std::optional<MachineNote> MachineExchange::note_of(int rank) const {
  const control::MessageBytes& said = membership_.roster().notes[static_cast<std::size_t>(rank)];
  return read_machine_note(read_join_info(said).machine);
}

// Hosts are numbered as their lowest ranks are.
Status MachineExchange::find_machines() {
  const int ranks = static_cast<int>(membership_.roster().notes.size());
  bool is_worth_it = false;
  for (int rank = 0; rank < ranks; ++rank) {
    if (layout_.of(rank).host != static_cast<int>(machine_of_host_.size())) continue;
    const std::optional<MachineNote> note = note_of(rank);
    if (!note) return invalid_usage(fmt::format("rank {} does not know its host's links", rank));
    is_worth_it |= note->has_several_ways;
    const auto known = std::ranges::find(machines_, *note, &ToldMachine::note);
    machine_of_host_.push_back(static_cast<int>(known - machines_.begin()));
    if (known == machines_.end()) machines_.push_back({*note, rank, {}});
    if (machines_.size() > max_different_machines)
      return invalid_usage(
          fmt::format("the hosts are more than {} different machines", max_different_machines));
  }
  if (!is_worth_it) return invalid_usage("no host has NVLinks or several ports");
  return {};
}

Status MachineExchange::begin() {
  until_ns_ = system_clock.now_ns() + patience_ns_;
  // Others would blame this rank for what it sends, and wait for what it does not.
  if (note_of(rank_) != (own_ ? std::optional(own_->note) : std::nullopt))
    return Status(Code::RemoteError,
                  fmt::format("the roster, which rank 0 made, says of rank {} what it has not said",
                              rank_))
        .blame({0});
  if (!objection_.ok()) return {};
  for (int i = 0; i < static_cast<int>(machines_.size()); ++i) {
    ToldMachine& machine = machines_[static_cast<std::size_t>(i)];
    if (own_ && own_->note == machine.note) machine.outline = own_->outline;
    if (machine.speaker == rank_) GYRE_TRY(send_to_others(i));
  }
  return {};
}

Status MachineExchange::send_to_others(int index) {
  const ToldMachine& machine = machines_[static_cast<std::size_t>(index)];
  const int ranks = static_cast<int>(membership_.roster().notes.size());
  for (int rank = 0; rank < ranks; ++rank)
    if (note_of(rank) != machine.note) GYRE_TRY(membership_.send(rank, outline_key, own_->message));
  return {};
}

Result<bool> MachineExchange::advance() {
  awaited_rank_ = -1;
  if (!objection_.ok()) return true;
  for (ToldMachine& machine : machines_) {
    if (machine.outline) continue;
    const auto message = membership_.receive(machine.speaker, outline_key);
    if (!message && system_clock.now_ns() >= until_ns_)
      return Status(Code::Timeout, fmt::format("rank {} has not described its host to this one "
                                               "within {} s",
                                               machine.speaker, patience_ns_ / ns_per_s))
          .blame({machine.speaker});
    if (!message) {
      awaited_rank_ = machine.speaker;
      return false;
    }
    const auto blame = [&](std::string_view what) {
      return Status(Code::RemoteError, fmt::format("rank {} described its host to this one: {}",
                                                   machine.speaker, what))
          .blame({machine.speaker});
    };
    GYRE_ASSIGN(const bool is_right, is_announced(*message, machine.note));
    if (!is_right) return blame("it is another machine than it had announced");
    Result<topology::Topology> outline = decode_outline(*message);
    if (!outline.ok()) return blame(outline.status().message());
    machine.outline = std::move(outline).value();
  }
  return true;
}

Result<topology::Cluster> MachineExchange::cluster() const {
  GYRE_TRY(objection_);
  topology::Cluster made;
  for (const ToldMachine& machine : machines_) made.machines.push_back(*machine.outline);
  for (const int machine : machine_of_host_) made.hosts.push_back({machine, {}});
  const int ranks = static_cast<int>(membership_.roster().notes.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const topology::HostedLocality& place = layout_.of(rank);
    topology::ClusterHost& host = made.hosts[static_cast<std::size_t>(place.host)];
    const int node = made.topology(host).find_bus_id(topology::kernel_bus_id(place.bus_id));
    if (node < 0)
      return invalid_usage(
          fmt::format("rank {} is on GPU {}, which its host's lowest rank does "
                      "not see",
                      rank, place.bus_id));
    host.members.push_back({rank, node});
  }
  return made;
}

}  // namespace gyre::comm
