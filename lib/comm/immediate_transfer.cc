#include "lib/comm/immediate_transfer.h"

#include <algorithm>

namespace gyre::comm {

ImmediateTransfer::Outcome ImmediateTransfer::send(const Transfer& transfer, std::uint64_t count) {
  exec::SendPort* const port = exchange_->ready_to_send(transfer, max_slots_one_way);
  if (port == nullptr) [[unlikely]]
    return Outcome::not_this;
  if (transfer.bytes < timed_flight_bytes) [[likely]]
    record_.begin(0, short_flight(transfer, count));
  else
    record_.begin(flight_call({&transfer, 1}));
  write_message(*port, transfer);
  if (!port->shares_memory) return ship(*port, transfer);
  record_.end_well();
  if (is_inline(transfer.bytes)) {
    last_send_ = repeatable(transfer, count);
    last_send_.port = port;
  }
  return Outcome::done;
}

// What is in a slot of a wire.
ImmediateTransfer::Outcome ImmediateTransfer::ship(exec::SendPort& port, const Transfer& transfer) {
  const auto look = [&] {
    if (!port.connection->progress().ok() || !state_.is_sound()) return ShortWait::ends;
    return port.connection->flushed() ? ShortWait::done : ShortWait::waits;
  };
  bool has_left = look() == ShortWait::done;
  if (!has_left) {
    record_.blocked();
    has_left = wait_shortly(policy_, look);
  }
  if (!has_left) {
    const Outcome outcome = leave(transfer);
    left_.is_shipped = true;
    return outcome;
  }
  record_.end_well();
  return Outcome::done;
}

ImmediateTransfer::Outcome ImmediateTransfer::receive(const Transfer& transfer,
                                                      std::uint64_t count) {
  Mailbox* const box = exchange_->ready_to_receive(transfer, max_slots_one_way);
  if (box == nullptr) [[unlikely]]
    return Outcome::not_this;
  if (transfer.bytes >= timed_flight_bytes) [[unlikely]]
    return receive_timed(*box, transfer);
  const Mailbox::Taken taken = box->take_now(transfer);
  if (taken == Mailbox::Taken::other) [[unlikely]]
    return Outcome::not_this;
  record_.begin(0, short_flight(transfer, count));
  if (taken == Mailbox::Taken::not_here && !await(*box, transfer)) return leave(transfer);
  record_.end_well();
  if (is_inline(transfer.bytes) && box->port().shares_memory) {
    last_receive_ = repeatable(transfer, count);
    last_receive_.box = box;
  }
  return Outcome::done;
}

// Its time counts from here, before it is taken.
ImmediateTransfer::Outcome ImmediateTransfer::receive_timed(Mailbox& box,
                                                            const Transfer& transfer) {
  record_.begin(flight_call({&transfer, 1}));
  const Mailbox::Taken taken = box.take_now(transfer);
  const bool is_done =
      taken == Mailbox::Taken::taken || (taken == Mailbox::Taken::not_here && await(box, transfer));
  if (!is_done) return leave(transfer);
  record_.end_well();
  return Outcome::done;
}

ImmediateTransfer::Outcome ImmediateTransfer::leave(const Transfer& transfer) {
  left_ = transfer;
  return Outcome::waits;
}

bool ImmediateTransfer::await(Mailbox& box, const Transfer& transfer) {
  record_.blocked();
  Mailbox::Taken taken = Mailbox::Taken::not_here;
  return wait_shortly(policy_, [&] {
    taken = box.take_now(transfer);
    if (taken == Mailbox::Taken::taken) return ShortWait::done;
    const bool goes_on = taken == Mailbox::Taken::not_here && state_.is_sound();
    return goes_on ? ShortWait::waits : ShortWait::ends;
  });
}

// ------------------------------------------------------------------------------ again

ImmediateTransfer::RepeatableTransfer ImmediateTransfer::repeatable(const Transfer& transfer,
                                                                    std::uint64_t count) {
  RepeatableTransfer made;
  made.shape = {.count = count,
                .type = static_cast<int>(transfer.type),
                .peer = transfer.peer,
                .tag = transfer.tag,
                .sends = transfer.sends};
  made.transfer = transfer;
  made.head = head_of(transfer);
  made.last_address = last_address(transfer.bytes);
  made.flight = short_flight(transfer, count);
  made.done = &record_.done(transfer.sends ? Function::send : Function::receive);
  return made;
}

ImmediateTransfer::Outcome ImmediateTransfer::receive_again(const TransferCall& call) {
  RepeatableTransfer& last = last_receive_;
  if (!last.takes(call, call.receive) || !state_.is_sound() ||
      !exchange_->may_receive_next(*last.box)) [[unlikely]]
    return Outcome::not_this;
  last.transfer.output = static_cast<std::byte*>(call.receive);
  last.transfer.source = call.source;
  last.transfer.received_tag = call.received_tag;
  const Mailbox::Taken taken = last.box->take_now(last.transfer);
  if (taken == Mailbox::Taken::other) [[unlikely]]
    return Outcome::not_this;
  record_.begin(0, last.flight);
  if (taken == Mailbox::Taken::not_here && !await(*last.box, last.transfer))
    return leave(last.transfer);
  record_.end_well(last.flight, *last.done);
  return Outcome::done;
}

// ------------------------------------------------------------------------------ a group

// What groups that are alike have in common.
void ImmediateTransfer::prepare(ShortGroup& group) {
  const auto sends = std::ranges::count_if(group.all(), &Transfer::sends);
  const bool both_ways = sends > 0 && sends < static_cast<std::ptrdiff_t>(group.count);
  group.max_slots = both_ways ? max_slots_both_ways : max_slots_one_way;
  group.flight = ShortFlight::of(flight_call(group.all()));
  group.prepared_count = group.count;
}

bool ImmediateTransfer::can_begin(const ShortGroup& group) {
  return is_ready() && std::ranges::all_of(group.all(), [&](const Transfer& one) {
           return one.sends ? exchange_->ready_to_send(one, group.max_slots) != nullptr
                            : exchange_->ready_to_receive(one, group.max_slots) != nullptr;
         });
}

ImmediateTransfer::Outcome ImmediateTransfer::carry_out(ShortGroup& group) {
  if (!group.is_repeated()) prepare(group);
  if (!can_begin(group)) [[unlikely]]
    return Outcome::not_this;
  if (group.flight.bytes < timed_flight_bytes) [[likely]]
    record_.begin(0, group.flight);
  else
    record_.begin(flight_call(group.all()));
  send_all(group);
  bool is_done = take_all(group) == ShortWait::done;
  if (!is_done) {
    record_.blocked();
    is_done = wait_shortly(policy_, [&] { return take_all(group); });
  }
  if (!is_done) return Outcome::waits;
  record_.end_well();
  return Outcome::done;
}

// In order, up to the first that finds no room.
void ImmediateTransfer::send_all(ShortGroup& group) {
  bool has_room = true;
  group.forget_if([&](const Transfer& one) {
    if (!one.sends || !has_room) return false;
    exec::SendPort* const port = exchange_->ready_to_send(one, group.max_slots);
    has_room = port != nullptr;
    if (has_room) write_message(*port, one);
    return has_room;
  });
}

// What is here: from each peer in order.
ShortWait ImmediateTransfer::take_all(ShortGroup& group) {
  bool moved = false, ends = false;
  const Transfer* waiting = group.transfers.data();
  const Transfer* const first = waiting;
  group.forget_if([&](const Transfer& one) {
    const bool is_behind =
        std::any_of(first, waiting, [&](const Transfer& other) { return other.peer == one.peer; });
    const auto taken = one.sends || is_behind
                           ? Mailbox::Taken::not_here
                           : exchange_->ready_to_receive(one, group.max_slots)->take_now(one);
    ends |= one.sends || taken == Mailbox::Taken::other;
    if (taken == Mailbox::Taken::taken) return moved = true;
    ++waiting;
    return false;
  });
  if (group.count == 0) return ShortWait::done;
  if (ends || !state_.is_sound()) return ShortWait::ends;
  return moved ? ShortWait::moved : ShortWait::waits;
}

}  // namespace gyre::comm
