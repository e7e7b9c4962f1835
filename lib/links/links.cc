#include "lib/links/links.h"

#include "lib/base/log.h"
#include "lib/links/candidates.h"
#include "lib/links/closed_end.h"
#include "lib/links/connect_message.h"
#include "lib/links/message_keys.h"
#include "lib/transport/handover.h"
#include "lib/trust/peer_process.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::comm {
namespace {

std::uint64_t channel_key(const Links::Key& key) {
  return message_key(MessageTopic::link, static_cast<std::uint64_t>(key.second));
}

// Beyond every channel of a plan.
constexpr int pair_channel = 1 << 16;

// A peer that goes because it was told of a failure refuses who was not told yet.
constexpr std::int64_t grace_ns = ns_per_s / 2;

transport::LinkKey link_key(const std::pair<int, int>& key, transport::Direction direction,
                            const std::vector<std::string>& ports = {}) {
  return {key.first, static_cast<std::uint32_t>(key.second), direction,
          key.second == pair_channel ? transport::TrafficClass::point_to_point
                                     : transport::TrafficClass::collective,
          ports};
}

}  // namespace

const trust::ProcessIdentity& Links::identity_of(int peer) const {
  const control::Roster& roster = membership_.roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(peer)]];
}

std::vector<TransportCandidate> Links::candidates(
    int peer, const std::function<topology::TransportPath(topology::Medium)>& find_path) const {
  return find_candidates(transports_, identity_of(peer), peer == rank_, find_path);
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
  for (const TransportCandidate& one :
       candidates(peer, [](topology::Medium) { return topology::TransportPath(); }))
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", one.transport,
                        one.reaches ? "reaches" : "does not reach", one.reason);
  return text.empty() ? "every transport is left out by the settings" : text;
}

Status Links::open(const plan::Plan& plan) {
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    const plan::Lane lane = plan.lane(index);
    for (std::uint32_t i = 0; i < lane.link_count; ++i)
      GYRE_TRY(open_one({lane.links[i].peer, lane.links[i].channel}, std::nullopt));
  }
  return {};
}

Status Links::open_pair(int peer) { return open_one({peer, pair_channel}, std::nullopt); }

Status Links::accept_pairs(int size) {
  for (int peer = 0; peer < size; ++peer) {
    if (receive_ports_.contains({peer, pair_channel})) continue;
    auto message = membership_.receive(peer, message_key(MessageTopic::link, pair_channel));
    if (message) GYRE_TRY(open_one({peer, pair_channel}, std::move(message)));
  }
  return {};
}

bool Links::plan_is_open() const {
  return std::ranges::all_of(opening_, [](const PendingConnection& opening) {
    return opening.key.second == pair_channel;
  });
}

bool Links::pair_is_open(int peer) const {
  const Key key{peer, pair_channel};
  return receive_ports_.contains(key) &&
         std::ranges::none_of(opening_,
                              [&](const PendingConnection& opening) { return opening.key == key; });
}

bool Links::can_receive(int peer) const {
  const auto port = receive_ports_.find({peer, pair_channel});
  return port != receive_ports_.end() && port->second->connection->ready();
}

Links::PortPair Links::pair(int peer) const {
  const Key key{peer, pair_channel};
  const auto send = send_ports_.find(key);
  return {send == send_ports_.end() ? nullptr : send->second.get(), receive_ports_.at(key).get()};
}

Status Links::check_pair(int peer) const { return check_sendable({peer, pair_channel}); }

FileDescriptor Links::process_of(int peer) const {
  const trust::ProcessIdentity& there = identity_of(peer);
  const trust::ProcessIdentity& here = identity_of(rank_);
  if (there.process == here.process || !trust::can_meet_locally(there, here)) return {};
  // Its number may be another process's here, in another PID namespace: its listener is its own.
  const auto listener = transport::connect_to_listener(there.listener_name);
  if (!listener.ok() || !listener->has_value()) return {};
  return trust::open_peer_process((*listener)->get());
}

Result<Links::ReceivingEnd> Links::listen(const Key& key, const transport::FifoShape& shape,
                                          const std::vector<std::string>& ports) const {
  GYRE_ASSIGN(transport::Transport * transport, select(key.first));
  GYRE_ASSIGN(transport::Listening listening,
              transport->listen(link_key(key, transport::Direction::receive, ports), shape,
                                identity_of(key.first)));
  ReceivingEnd listened{std::move(listening.connection),
                        {.probe = probe_, .endpoint = std::move(listening.endpoint)}};
  for (std::size_t place = 0; place < transports_.size(); ++place)
    if (transports_[place].get() == transport)
      listened.message.transport = static_cast<std::uint32_t>(place);
  return listened;
}

Result<std::unique_ptr<transport::Connection>> Links::connect(
    const Key& key, const transport::FifoShape& shape, const control::MessageBytes& message,
    const std::vector<std::string>& ports) const {
  const std::optional<ConnectMessage> said = decode_connect_message(message, transports_.size());
  if (!said)
    return Status(Code::RemoteError, fmt::format("rank {} sent a malformed endpoint", key.first))
        .blame({key.first});
  return transports_[said->transport]->connect(link_key(key, transport::Direction::send, ports),
                                               shape, said->endpoint);
}

Status Links::open_one(const Key& key, std::optional<control::MessageBytes> early) {
  if (receive_ports_.contains(key)) return {};
  GYRE_ASSIGN(ReceivingEnd listening, listen(key, shape_));
  const ConnectMessage& message = listening.message;
  auto port = std::make_unique<exec::ReceivePort>();
  port->peer = key.first;
  port->channel = key.second;
  port->slots = transport::SlotReader(listening.connection->fifo());
  port->lines = transport::LineReader(listening.connection->fifo());
  port->carrier = listening.connection->carrier();
  port->shares_memory = !listening.connection->needs_progress();
  port->connection = std::move(listening.connection);
  receive_ports_[key] = std::move(port);
  GYRE_TRY(membership_.send(key.first, channel_key(key), encode(message)));
  opening_.push_back({key, false, std::move(early)});
  log_info(Subsystem::graph, "{} with rank {} over {} ({})",
           key.second == pair_channel ? std::string("sends and receives")
                                      : fmt::format("channel {}", key.second),
           key.first, transports_[message.transport]->name(), reasons(key.first));
  return {};
}

Status Links::connect(PendingConnection& opening, const control::MessageBytes& message) {
  const int peer = opening.key.first;
  const std::optional<ConnectMessage> said = decode_connect_message(message, transports_.size());
  if (!said)
    return Status(Code::RemoteError, fmt::format("rank {} sent a malformed endpoint", peer))
        .blame({peer});
  transport::Transport& transport = *transports_[said->transport];
  GYRE_ASSIGN(auto connection, transport.connect(link_key(opening.key, transport::Direction::send),
                                                 shape_, said->endpoint));
  auto port = std::make_unique<exec::SendPort>();
  exec::ReceivePort& back = *receive_ports_[opening.key];
  port->peer = peer;
  port->channel = opening.key.second;
  port->same_address_space = back.same_address_space = connection->same_address_space();
  if (!port->same_address_space && transport.reach(identity_of(peer)).maps_slots)
    reach_memory(*port, back, memory_of(opening.key, said->probe));
  port->carrier = connection->carrier();
  port->shares_memory = !connection->needs_progress();
  port->connection = std::move(connection);
  send_ports_[opening.key] = std::move(port);
  return {};
}

void Links::reach_memory(exec::SendPort& send, exec::ReceivePort& receive,
                         transport::PeerMemory* memory) const {
  if (memory == nullptr) return;
  if (memory->maps()) send.peer_memory = memory;
  receive.copies = copies_ && memory->copies();
  if (memory->maps() || receive.copies) receive.peer_memory = memory;
  if (copies_ && !memory->copies())
    log_info(Subsystem::shm, "the kernel copies nothing from the memory of rank {} for this one",
             send.peer);
}

// Whether this process reaches the peer's memory is found out once for each process.
transport::PeerMemory* Links::memory_of(const Key& key, const transport::Probe& probe) {
  const std::uint32_t process =
      membership_.roster().process_of_rank[static_cast<std::size_t>(key.first)];
  auto& memory = (key.second == pair_channel ? pair_memories_ : peer_memories_)[process];
  if (memory == nullptr) memory = transport::PeerMemory::open(probe);
  return memory.get();
}

Status Links::advance_one(PendingConnection& opening, bool& moved, bool& open) {
  exec::ReceivePort& receive = *receive_ports_[opening.key];
  GYRE_TRY(receive.connection->progress());
  if (!opening.endpoint_came) {
    auto message = std::exchange(opening.message, std::nullopt);
    if (!message) message = membership_.receive(opening.key.first, channel_key(opening.key));
    if (!message) return {};
    // A peer that only sends may have left before this rank looked: its messages are here.
    opening.dialed_ns = SystemClock::read();
    Status connected = connect(opening, *message);
    if (!connected.ok())
      unsendable_[opening.key] = {std::move(connected), opening.dialed_ns, opening.dialed_ns,
                                  false};
    opening.endpoint_came = moved = true;
  }
  open = receive.connection->ready();
  const auto found = send_ports_.find(opening.key);
  if (found == send_ports_.end()) return {};
  exec::SendPort& send = *found->second;
  if (Status moved_on = send.connection->progress(); !moved_on.ok()) {
    unsendable_[opening.key] = {std::move(moved_on), opening.dialed_ns, SystemClock::read(),
                                send.connection->met_silence()};
    send_ports_.erase(found);
    return {};
  }
  open = open && send.connection->ready();
  if (!open) return {};
  exec::begin_to_send(send, receive);
  if (opening.key.second == pair_channel && receive.shares_memory) exec::tell_reach(receive);
  return {};
}

exec::SendPort* Links::send_port(const Key& key) {
  std::unique_ptr<exec::SendPort>& port = send_ports_[key];
  if (port == nullptr) {
    port = std::make_unique<exec::SendPort>();
    port->peer = key.first;
    port->channel = key.second;
    port->connection = std::make_unique<ClosedEnd>(check_sendable(key));
    port->slots = transport::SlotWriter(port->connection->fifo());
    port->lines = transport::LineWriter(port->connection->fifo());
  }
  return port.get();
}

Status Links::check_sendable(const Key& key) const {
  const auto found = unsendable_.find(key);
  return found == unsendable_.end() ? Status() : found->second.why;
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
    opening_.erase(opening_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

Blocked Links::blocked() const {
  if (opening_.empty()) return {};
  return {BlockedOn::connection, opening_[0].key.first, opening_[0].key.second, 0};
}

// Who has left may have gone before this rank dialed. A dial that met silence has waited by then.
Status Links::check_reached(std::int64_t now_ns, std::int64_t limit_ns) const {
  for (const auto& [key, link] : unsendable_) {
    const bool is_own = link.why.code() != Code::RemoteError;
    const std::int64_t ripe_ns = std::max(link.dialed_ns + limit_ns, link.failed_ns) + grace_ns;
    if ((is_own || link.is_silent || now_ns >= ripe_ns) && !membership_.has_left(key.first))
      return link.why;
  }
  for (const auto& [key, port] : send_ports_)
    if (!membership_.has_left(key.first))
      GYRE_TRY(port->connection->look_at_peer(now_ns, limit_ns));
  return {};
}

Status Links::look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(check_reached(now_ns, limit_ns));
  for (const PendingConnection& opening : opening_)
    GYRE_TRY(receive_ports_[opening.key]->connection->look_at_peer(now_ns, limit_ns));
  return {};
}

bool Links::arm(WaitSet& set) {
  set.add_futex(&membership_.changed(), membership_.changed().load(std::memory_order_acquire));
  for (const PendingConnection& opening : opening_) {
    receive_ports_[opening.key]->connection->arm(set);
    if (const auto send = send_ports_.find(opening.key); send != send_ports_.end())
      send->second->connection->arm(set);
  }
  return true;
}

void Links::disarm() {
  for (const PendingConnection& opening : opening_) {
    receive_ports_[opening.key]->connection->disarm();
    if (const auto send = send_ports_.find(opening.key); send != send_ports_.end())
      send->second->connection->disarm();
  }
}

exec::BoundPlan Links::bind(const plan::Plan& plan) {
  exec::BoundPlan bound;
  bound.rank = rank_;
  bound.direct = plan.direct();
  bound.direct_in_place = plan.direct_in_place();
  const auto add_once = [](auto& list, auto* port) {
    const bool is_new = std::ranges::find(list, port) == list.end();
    if (is_new) list.push_back(port);
    return is_new;
  };
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    exec::BoundPlan::LaneEnds ends;
    ends.lane = plan.lane(index);
    ends.shared = exec::StealableStep::of(ends.lane);
    const std::vector<bool> sends = plan::used_links(ends.lane, true);
    const std::vector<bool> receives = plan::used_links(ends.lane, false);
    const std::vector<plan::Stored> stored = plan::stored_links(ends.lane);
    for (std::uint32_t i = 0; i < ends.lane.link_count; ++i) {
      const Key key{ends.lane.links[i].peer, ends.lane.links[i].channel};
      ends.send.push_back(sends[i] ? send_port(key) : nullptr);
      ends.recv.push_back(receives[i] ? receive_ports_[key].get() : nullptr);
      if (sends[i]) add_once(bound.send_ports, ends.send.back());
      if (receives[i] && add_once(bound.receive_ports, ends.recv.back()))
        bound.stored.push_back(stored[i]);
    }
    bound.lanes.push_back(std::move(ends));
  }
  return bound;
}

}  // namespace gyre::comm
