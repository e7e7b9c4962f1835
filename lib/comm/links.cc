#include "lib/comm/links.h"

#include "lib/base/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

std::uint64_t letter_key(int channel) { return 1ULL << 56 | static_cast<std::uint32_t>(channel); }

// What precedes an endpoint: which transport (by its place in the list, which all ranks share), and
// how to try this process's regions.
struct LetterHead {
  std::uint32_t transport = 0;
  transport::Probe probe;
};

transport::LinkKey link_key(const std::pair<int, int>& key, transport::Direction direction) {
  return {key.first, static_cast<std::uint32_t>(key.second), direction,
          transport::TrafficClass::collective};
}

}  // namespace

const trust::ProcessIdentity& Links::identity_of(int peer) const {
  const bootstrap::Roster& roster = membership_.roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(peer)]];
}

Result<transport::Transport*> Links::select(int peer) const {
  for (const auto& candidate : transports_) {
    // A rank with itself has a transport of its own, and only that.
    if ((candidate->name() == "self") != (peer == rank_)) continue;
    if (candidate->reach(identity_of(peer)).reachable) return candidate.get();
  }
  return Status(Code::SystemError,
                fmt::format("no transport reaches rank {}: {}", peer, reasons(peer)))
      .blame({peer});
}

std::string Links::reasons(int peer) const {
  std::string text;
  for (const auto& candidate : transports_) {
    if ((candidate->name() == "self") != (peer == rank_)) continue;
    const Reach reach = candidate->reach(identity_of(peer));
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", candidate->name(),
                        reach.reachable ? "reaches" : "does not reach", reach.reason);
  }
  return text.empty() ? "every transport is left out by the settings" : text;
}

Status Links::open(const plan::Plan& plan) {
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    const plan::Lane lane = plan.lane(index);
    for (std::uint32_t i = 0; i < lane.link_count; ++i) {
      const Key key{lane.links[i].peer, lane.links[i].channel};
      if (receive_ports_.contains(key)) continue;
      GYRE_ASSIGN(transport::Transport * transport, select(key.first));
      GYRE_ASSIGN(transport::Listening listening,
                  transport->listen(link_key(key, transport::Direction::receive), shape_,
                                    identity_of(key.first)));
      LetterHead head;
      for (std::size_t place = 0; place < transports_.size(); ++place)
        if (transports_[place].get() == transport)
          head.transport = static_cast<std::uint32_t>(place);
      head.probe = probe_;
      bootstrap::Letter letter(sizeof head);
      std::memcpy(letter.data(), &head, sizeof head);
      letter.insert(letter.end(), listening.endpoint.begin(), listening.endpoint.end());
      auto port = std::make_unique<exec::ReceivePort>();
      port->peer = key.first;
      port->channel = key.second;
      port->slots = transport::SlotReader(listening.connection->fifo());
      port->lines = transport::LineReader(listening.connection->fifo());
      port->connection = std::move(listening.connection);
      receive_ports_[key] = std::move(port);
      GYRE_TRY(membership_.send(key.first, letter_key(key.second), std::move(letter)));
      opening_.push_back({key});
      log_info("channel {} from rank {} over {} ({})", key.second, key.first, transport->name(),
               reasons(key.first));
    }
  }
  return {};
}

Status Links::connect(Opening& opening, const bootstrap::Letter& letter) {
  const int peer = opening.key.first;
  LetterHead head;
  if (letter.size() >= sizeof head) std::memcpy(&head, letter.data(), sizeof head);
  if (letter.size() < sizeof head || head.transport >= transports_.size())
    return Status(Code::RemoteError, fmt::format("rank {} sent a malformed endpoint", peer))
        .blame({peer});
  transport::Transport& transport = *transports_[head.transport];
  const transport::Endpoint endpoint(letter.begin() + sizeof head, letter.end());
  GYRE_ASSIGN(auto connection, transport.connect(link_key(opening.key, transport::Direction::send),
                                                 shape_, endpoint));
  auto port = std::make_unique<exec::SendPort>();
  exec::ReceivePort& back = *receive_ports_[opening.key];
  port->peer = peer;
  port->channel = opening.key.second;
  port->same_address_space = back.same_address_space = connection->same_address_space();
  if (!port->same_address_space && transport.reach(identity_of(peer)).maps_slots)
    port->peer_memory = back.peer_memory = memory_of(peer, head.probe);
  port->connection = std::move(connection);
  send_ports_[opening.key] = std::move(port);
  return {};
}

// Whether this process can map the peer's regions is found out once for each process.
transport::PeerMemory* Links::memory_of(int peer, const transport::Probe& probe) {
  const std::uint32_t process =
      membership_.roster().process_of_rank[static_cast<std::size_t>(peer)];
  auto& memory = peer_memories_[process];
  if (memory == nullptr) memory = transport::PeerMemory::open(probe);
  return memory.get();
}

Status Links::advance_one(Opening& opening, bool& moved, bool& open) {
  if (!opening.endpoint_came) {
    const auto letter = membership_.receive(opening.key.first, letter_key(opening.key.second));
    if (!letter) return {};
    GYRE_TRY(connect(opening, *letter));
    opening.endpoint_came = moved = true;
  }
  exec::SendPort& send = *send_ports_[opening.key];
  exec::ReceivePort& receive = *receive_ports_[opening.key];
  GYRE_TRY(send.connection->progress());
  GYRE_TRY(receive.connection->progress());
  open = send.connection->ready() && receive.connection->ready();
  if (!open) return {};
  send.slots = transport::SlotWriter(send.connection->fifo());
  send.lines = transport::LineWriter(send.connection->fifo());
  return {};
}

Status Links::advance(bool& moved) {
  for (std::size_t i = 0; i < opening_.size();) {
    bool open = false;
    GYRE_TRY(advance_one(opening_[i], moved, open)
                 .while_doing(fmt::format("opening the link to rank {}", opening_[i].key.first)));
    if (!open) {
      ++i;
      continue;
    }
    moved = true;
    opening_[i] = opening_.back();
    opening_.pop_back();
  }
  return {};
}

Blocked Links::blocked() const {
  if (opening_.empty()) return {};
  return {BlockedOn::connection, opening_[0].key.first, opening_[0].key.second, 0};
}

bool Links::arm(WaitSet& set) {
  set.add_futex(&membership_.changed(), membership_.changed().load(std::memory_order_acquire));
  for (const Opening& opening : opening_) {
    receive_ports_[opening.key]->connection->arm(set);
    if (opening.endpoint_came) send_ports_[opening.key]->connection->arm(set);
  }
  return true;
}

void Links::disarm() {
  for (const Opening& opening : opening_) {
    receive_ports_[opening.key]->connection->disarm();
    if (opening.endpoint_came) send_ports_[opening.key]->connection->disarm();
  }
}

exec::BoundPlan Links::bind(const plan::Plan& plan) {
  exec::BoundPlan bound;
  bound.direct = plan.direct();
  bound.direct_in_place = plan.direct_in_place();
  const auto add_once = [](auto& list, auto* port) {
    if (std::ranges::find(list, port) == list.end()) list.push_back(port);
  };
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    exec::BoundPlan::LaneEnds ends;
    ends.lane = plan.lane(index);
    for (std::uint32_t i = 0; i < ends.lane.link_count; ++i) {
      const Key key{ends.lane.links[i].peer, ends.lane.links[i].channel};
      ends.send.push_back(send_ports_[key].get());
      ends.recv.push_back(receive_ports_[key].get());
      add_once(bound.send_ports, ends.send.back());
      add_once(bound.receive_ports, ends.recv.back());
    }
    bound.lanes.push_back(std::move(ends));
  }
  return bound;
}

}  // namespace gyre::comm
