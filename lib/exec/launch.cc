#include "lib/exec/launch.h"

#include <fmt/core.h>

namespace gyre::exec {

using transport::DeliveryMode;
using transport::message_flag;

void Launch::begin(BoundPlan& bound, const Call& call) {
  if (call.protocol == Protocol::line || call.short_run != nullptr) {
    ShortRun* const run = call.short_run != nullptr ? call.short_run : &own_short_run_;
    if (call.short_run == nullptr) own_short_run_.bind(bound, call);
    run->begin(call.input, call.output, call.pre_scalar);
    take_over(bound, call);
    fresh_ = true;
    return;
  }
  short_run_ = nullptr;
  bound_ = &bound;
  call_ = &call;
  element_bytes_ = element_bytes(call.type);
  reduce_ = kernels::find_move(call.type, call.op);
  error_ = {};
  unfinished_ = nullptr;
  lanes_done_ = 0;
  fresh_ = true;
  for (SendPort* port : bound.send_ports) port->pulled = false;
  lends_ = call.protocol == Protocol::direct && call.lends && bound.direct &&
           (bound.direct_in_place || !call.in_place);
  if (lanes_.size() < bound.lanes.size()) lanes_.resize(bound.lanes.size());
  const std::uint64_t rounds = plan::rounds(call_->geometry);
  for (std::size_t i = 0; i < bound.lanes.size(); ++i) {
    LaneRun& run = lanes_[i];
    run.ends = &bound.lanes[i];
    run.cursor = plan::Cursor(run.ends->lane, call_->geometry, rounds);
    run.has_move = false;
    run.blocked = {};
    if (call.protocol == Protocol::direct) begin_stealing(run);
    run.stealing.own = StealState::OwnPiece::open;
    const std::size_t links = run.ends->lane.link_count;
    if (run.sources.size() <= links) {
      run.incoming.resize(links);
      run.outgoing.resize(links);
      run.sources.resize(links + 1);
      run.targets.resize(links + 1);
    }
    if (run.cursor.done()) ++lanes_done_;
  }
  if (call.protocol == Protocol::direct) lend_buffers();
}

void Launch::take_over(BoundPlan& bound, const Call& call) {
  bound_ = &bound;
  call_ = &call;
  short_run_ = call.short_run != nullptr ? call.short_run : &own_short_run_;
  error_ = {};
  unfinished_ = nullptr;
  lends_ = false;
  fresh_ = false;
  for (SendPort* port : bound.send_ports) port->pulled = false;
}

template <typename Port>
bool Launch::progress(const std::vector<Port*>& ports) {
  for (Port* port : ports) {
    if (!port->connection->needs_progress()) continue;
    error_ = port->connection->progress();
    if (!error_.ok()) return false;
  }
  return true;
}

// What came in, then what it lets the lanes do, then what they leave to be sent: a call's first
// message is on its way before anything is asked of the kernel.
Launch::State Launch::advance() {
  if (!fresh_ && !progress(bound_->receive_ports)) return State::failed;
  fresh_ = false;
  bool moved = false, done = false;
  if (short_run_ != nullptr)
    advance_short_run(moved, done);
  else
    advance_lanes(moved, done);
  if (!error_.ok() || !progress(bound_->send_ports)) return State::failed;
  if (!done) moved = moved || share();
  const bool finished = done && finish_up();
  if (!error_.ok()) return State::failed;
  if (!finished) return moved ? State::moved : State::blocked;
  if (call_->protocol == Protocol::direct) end_wire_loans();
  return State::done;
}

void Launch::advance_short_run(bool& moved, bool& done) {
  const ShortRun::State state = short_run_->advance();
  moved = state == ShortRun::State::moved;
  done = state == ShortRun::State::done;
  if (state == ShortRun::State::other_call)
    (void)fail_mismatch(short_run_->stranger(), "its signature differs");
}

void Launch::advance_lanes(bool& moved, bool& done) {
  for (std::size_t i = 0; i < bound_->lanes.size() && error_.ok(); ++i)
    if (!lanes_[i].cursor.done()) moved |= advance_lane(lanes_[i]);
  done = lanes_done_ == bound_->lanes.size();
}

// Nothing pending may need this rank again: bytes have left, lent buffers are given back.
bool Launch::finish_up() {
  for (SendPort* port : bound_->send_ports) {
    unfinished_ = port;
    if (!port->connection->flushed()) {
      error_ = port->connection->progress();
      if (!error_.ok() || !port->connection->flushed()) return false;
    }
    if (port->pulled && !port->slots.drained()) return false;
  }
  unfinished_ = nullptr;
  return true;
}

bool Launch::advance_lane(LaneRun& run) {
  bool moved = false;
  while (true) {
    if (!run.has_move) {
      run.move = run.cursor.move();
      run.has_move = true;
    }
    if (!ready(run)) return moved;
    perform(run);
    if (!error_.ok()) return moved;
    moved = true;
    run.has_move = false;
    if (run.move.step == run.ends->shared.step) own_piece_is_sent(run);
    run.cursor.advance();
    if (!run.cursor.done()) continue;
    run.blocked = {};
    ++lanes_done_;
    return true;
  }
}

bool Launch::ready(LaneRun& run) {
  const plan::Move& move = run.move;
  for (std::uint32_t i = 0; i < move.recv.count; ++i)
    if (!message_is_here(run, *run.ends->recv[move.recv[i]])) return false;
  for (std::uint32_t i = 0; i < move.send.count; ++i)
    if (!may_send(run, *run.ends->send[move.send[i]])) return false;
  return own_piece_is_settled(run);
}

bool Launch::message_is_here(LaneRun& run, ReceivePort& port) {
  if (port.slots.has_message()) return true;
  block(run, BlockedOn::data, nullptr, &port);
  return false;
}

bool Launch::may_send(LaneRun& run, SendPort& port) {
  if (!port.slots.has_credit()) {
    block(run, BlockedOn::credit, &port, nullptr);
    return false;
  }
  const bool reachable = port.same_address_space || port.peer_memory != nullptr ||
                         (port.carrier != nullptr && port.carrier->grants());
  if (call_->protocol != Protocol::direct || !reachable ||
      plan::delivery(*run.move.step) != plan::Delivery::push)
    return true;
  // Pairs with the release in lend_buffers of the receiver.
  const auto& grant = port.slots.view().control->receiver_grant;
  if (grant.sequence.load(std::memory_order_acquire) == call_->sequence + 1) return true;
  block(run, BlockedOn::entered, &port, nullptr);
  return false;
}

void Launch::block(LaneRun& run, BlockedOn what, SendPort* send, ReceivePort* receive) {
  run.awaited_send = send;
  run.awaited_receive = receive;
  run.blocked.what = what;
  run.blocked.peer = send != nullptr ? send->peer : receive->peer;
  run.blocked.channel = send != nullptr ? send->channel : receive->channel;
  run.blocked.chunk = run.move.step->chunks.base + run.move.place;
}

void Launch::perform(LaneRun& run) {
  if (call_->protocol == Protocol::direct) return perform_in_loans(run);
  if (!open_incoming(run) || !open_outgoing(run)) return;
  move_message(run);
  close_messages(run);
}

void Launch::perform_in_loans(LaneRun& run) {
  const GiveBackGuard at_the_end(run);
  if (!open_incoming(run) || !open_outgoing(run)) return;
  if (run.stealing.own != StealState::OwnPiece::done) {
    if (!copy_incoming(run)) return;
    move_message(run);
  }
  if (was_lent(run)) close_messages(run);
}

bool Launch::open_incoming(LaneRun& run) {
  const plan::Move& move = run.move;
  for (std::uint32_t i = 0; i < move.recv.count; ++i) {
    ReceivePort& port = *run.ends->recv[move.recv[i]];
    Incoming& incoming = run.incoming[i];
    incoming = {};
    const transport::SlotHeader note = port.slots.note();
    if (note.flag != message_flag(port.slots.head() + 1, call_->signature))
      return fail_mismatch(port.peer, "its signature differs");
    if (note.bytes != move.bytes)
      return fail_mismatch(
          port.peer, fmt::format("a message has {} bytes in place of {}", note.bytes, move.bytes));
    if (note.delivery == DeliveryMode::staged) {
      incoming.base = port.slots.place(note.bytes);
    } else if (note.delivery == DeliveryMode::pull) {
      transport::FifoControl& control = *port.slots.view().control;
      incoming.mark = &control.receiver_borrows.value;
      incoming.grant = &control.sender_grant;
      const bool is_lent =
          call_->protocol == Protocol::direct && borrow(control.sender_grant, *incoming.mark);
      const transport::Loan loan = is_lent ? control.sender_grant.read() : transport::Loan{};
      auto reached = borrowed(loan, port.same_address_space, port.peer_memory);
      if (!reached.ok()) return fail_shortage(port.peer, std::move(reached).status());
      incoming.base = *reached;
      if (port.copies && loan.region == transport::region_copied) incoming.remote = loan.offset;
      const bool is_reached = incoming.base != nullptr || incoming.remote != 0;
      if (!is_reached || !stays_within(run, loan.bytes, true))
        return fail_pull(port, control.sender_grant);
      incoming.in_input_layout = true;
    } else if (note.delivery != DeliveryMode::push) {
      return fail_mismatch(port.peer, "a message has an unknown delivery");
    } else if (!lends_ || move.step->store != plan::Buffer::output || move.step->reduces()) {
      return fail_mismatch(port.peer, "it wrote into memory that was not lent");
    }
  }
  return true;
}

bool Launch::open_outgoing(LaneRun& run) {
  const plan::Move& move = run.move;
  if (run.stealing.own == StealState::OwnPiece::done) {
    for (std::uint32_t i = 0; i < move.send.count; ++i)
      run.outgoing[i] = {.delivery = DeliveryMode::push};
    return true;
  }
  const plan::Delivery wish =
      call_->protocol == Protocol::direct ? plan::delivery(*move.step) : plan::Delivery::staged;
  for (std::uint32_t i = 0; i < move.send.count; ++i) {
    SendPort& port = *run.ends->send[move.send[i]];
    Outgoing& outgoing = run.outgoing[i];
    outgoing = {.base = port.slots.place(move.bytes)};
    if (port.carrier != nullptr) {
      if (wish != plan::Delivery::staged) open_by_wire(run, port, outgoing);
    } else if (wish == plan::Delivery::pull && move.step->local == plan::Buffer::input &&
               pulls_from_us(port, move.bytes)) {
      outgoing = {.delivery = DeliveryMode::pull};
      port.pulled = true;
    } else if (wish == plan::Delivery::push) {
      transport::FifoControl& control = *port.slots.view().control;
      transport::Grant& grant = control.receiver_grant;
      const transport::Loan loan = grant.read();
      auto reached = borrowed(loan, port.same_address_space, port.peer_memory);
      if (!reached.ok()) return fail_shortage(port.peer, std::move(reached).status());
      std::byte* const output = *reached;
      if (output == nullptr || !stays_within(run, loan.bytes, false)) continue;
      outgoing.mark = &control.sender_borrows.value;
      // Who took its buffer back has failed, and gets a message that it will not read.
      if (borrow(grant, *outgoing.mark)) {
        outgoing.base = output;
        outgoing.delivery = DeliveryMode::push;
      }
    }
  }
  return true;
}

void Launch::close_messages(LaneRun& run) {
  const plan::Move& move = run.move;
  for (std::uint32_t i = 0; i < move.send.count; ++i) {
    SendPort& port = *run.ends->send[move.send[i]];
    port.slots.commit(static_cast<std::uint32_t>(move.bytes),
                      message_flag(port.slots.tail() + 1, call_->signature),
                      run.outgoing[i].delivery);
  }
  for (std::uint32_t i = 0; i < move.recv.count; ++i) run.ends->recv[move.recv[i]]->slots.release();
}

bool Launch::fail_mismatch(int peer, std::string_view what) {
  error_ = Status(Code::Mismatch, fmt::format("rank {} made a different call: {}", peer, what))
               .blame({peer});
  return false;
}

bool Launch::fail_pull(const ReceivePort& port, const transport::Grant& grant) {
  if (grant.sequence.load(std::memory_order_relaxed) != 0)
    return fail_mismatch(port.peer, "the buffer that it lends cannot be reached");
  error_ = Status(Code::RemoteError,
                  fmt::format("rank {} has taken back the buffer that it lent", port.peer))
               .blame({port.peer});
  return false;
}

// The peer is not to blame.
bool Launch::fail_shortage(int peer, Status why) {
  error_ = std::move(why).while_doing(fmt::format("reaching the buffer that rank {} lends", peer));
  return false;
}

Blocked Launch::blocked() const {
  if (short_run_ != nullptr) {
    if (const Blocked on = short_run_->blocked(); on.what != BlockedOn::nothing) return on;
  } else {
    for (std::size_t i = 0; i < bound_->lanes.size(); ++i)
      if (!lanes_[i].cursor.done()) return lanes_[i].blocked;
  }
  if (unfinished_ == nullptr) return {};
  return {BlockedOn::drain, unfinished_->peer, unfinished_->channel, 0};
}

// The connections that the lanes wait for.
template <typename Visit>
void Launch::for_each_awaited(const Visit& visit) const {
  if (short_run_ != nullptr) return short_run_->for_each_awaited(visit);
  for (std::size_t i = 0; i < bound_->lanes.size(); ++i) {
    const LaneRun& run = lanes_[i];
    if (run.cursor.done()) continue;
    visit(run.awaited_send != nullptr ? *run.awaited_send->connection
                                      : *run.awaited_receive->connection);
  }
}

Status Launch::look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) const {
  Status seen;
  for_each_awaited([&](transport::Connection& connection) {
    if (seen.ok()) seen = connection.look_at_peer(now_ns, limit_ns);
  });
  GYRE_TRY(seen);
  return unfinished_ == nullptr ? Status()
                                : unfinished_->connection->look_at_peer(now_ns, limit_ns);
}

bool Launch::waits_on_memory() const {
  bool all = unfinished_ == nullptr || !unfinished_->connection->needs_progress();
  for_each_awaited(
      [&](const transport::Connection& connection) { all &= !connection.needs_progress(); });
  return all;
}

bool Launch::may_go_on() {
  if (short_run_ != nullptr) return short_run_->could_move();
  for (std::size_t i = 0; i < bound_->lanes.size(); ++i)
    if (!lanes_[i].cursor.done() && ready(lanes_[i])) return true;
  return false;
}

bool Launch::arm(WaitSet& set) {
  for_each_awaited([&](transport::Connection& connection) { connection.arm(set); });
  const bool asleep = !may_go_on();
  if (unfinished_ != nullptr) unfinished_->connection->arm(set);
  // A link that this thread ships for may become writable while a lane waits for something else.
  for (SendPort* port : bound_->send_ports)
    if (!port->connection->flushed()) port->connection->arm(set);
  return asleep && error_.ok();
}

void Launch::disarm() {
  for (SendPort* port : bound_->send_ports) port->connection->disarm();
  for (ReceivePort* port : bound_->receive_ports) port->connection->disarm();
}

}  // namespace gyre::exec
