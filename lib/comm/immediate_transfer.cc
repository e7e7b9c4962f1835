#include "lib/comm/immediate_transfer.h"

#include <algorithm>

namespace gyre::comm {

bool ImmediateTransfer::await(Mailbox& box, const Transfer& transfer, const WaitPolicy& policy) {
  record_.blocked();
  Mailbox::Taken taken = Mailbox::Taken::not_here;
  return wait_shortly(policy, [&] {
    taken = box.take_now(transfer);
    if (taken == Mailbox::Taken::taken) return ShortWait::done;
    const bool goes_on = taken == Mailbox::Taken::not_here && state_.is_sound();
    return goes_on ? ShortWait::waits : ShortWait::ends;
  });
}

// Its time counts from here, before it is taken.
ImmediateTransfer::Outcome ImmediateTransfer::receive_timed(Mailbox& box, const Transfer& transfer,
                                                            const WaitPolicy& policy) {
  record_.begin(flight_call({&transfer, 1}));
  const Mailbox::Taken taken = box.take_now(transfer);
  const bool is_done = taken == Mailbox::Taken::taken ||
                       (taken == Mailbox::Taken::not_here && await(box, transfer, policy));
  if (!is_done) return Outcome::waits;
  record_.end_well();
  return Outcome::done;
}

// ------------------------------------------------------------------------------ a group

bool ImmediateTransfer::can_begin(ShortGroup& group) {
  const auto sends = std::ranges::count_if(group.all(), &Transfer::sends);
  const bool both_ways = sends > 0 && sends < static_cast<std::ptrdiff_t>(group.count);
  group.max_slots = both_ways ? max_slots_both_ways : max_slots_one_way;
  return is_ready() && std::ranges::all_of(group.all(), [&](const Transfer& one) {
           return one.sends ? exchange_->ready_to_send(one, group.max_slots) != nullptr
                            : exchange_->ready_to_receive(one, group.max_slots) != nullptr;
         });
}

ImmediateTransfer::Outcome ImmediateTransfer::carry_out(ShortGroup& group,
                                                        const WaitPolicy& policy) {
  if (!can_begin(group)) [[unlikely]]
    return Outcome::not_this;
  record_.begin(flight_call(group.all()));
  send_all(group);
  bool is_done = take_all(group) == ShortWait::done;
  if (!is_done) {
    record_.blocked();
    is_done = wait_shortly(policy, [&] { return take_all(group); });
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
