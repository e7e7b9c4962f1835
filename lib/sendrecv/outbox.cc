#include "lib/sendrecv/outbox.h"

#include "kernels/cpu/move.h"
#include "lib/sendrecv/inline_message.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace gyre::comm {
namespace {

// A shorter message is copied sooner than its memory is looked up. Reasoned, not measured.
constexpr std::uint64_t min_held_bytes = 64 << 10;

}  // namespace

bool Outbox::has_room(exec::SendPort& port) const {
  if (lent_until_) return port.slots.released(*lent_until_);
  const bool begins = !open_.empty() && !is_begun_;
  return port.shares_memory && begins
             ? port.lines.has_credit(message_lines(open_.front().transfer->bytes))
             : port.slots.has_credit();
}

void Outbox::ship(exec::SendPort& port, bool& moved) {
  while (!open_.empty() && (open_.front().transfer->is_shipped || has_room(port))) {
    if (open_.front().transfer->is_shipped)
      sent_ = open_.front().transfer->bytes;
    else if (lent_until_)
      end_loan(port);
    else if (port.shares_memory && !is_begun_)
      ship_lines(port);
    else if (!lend(port))
      ship_slot(port);
    moved = true;
    if (sent_ == open_.front().transfer->bytes) settle_first(port);
  }
}

// The head, and the payload if it is short.
void Outbox::ship_lines(exec::SendPort& port) {
  const Transfer& transfer = *open_.front().transfer;
  write_lines(port.lines, head_of(transfer), transfer.input);
  is_begun_ = true;
  if (is_inline(transfer.bytes)) sent_ = transfer.bytes;
}

// One after the other; the head in the first, if no line had it.
void Outbox::ship_slot(exec::SendPort& port) {
  const Transfer& transfer = *open_.front().transfer;
  const std::uint64_t used = std::exchange(is_begun_, true) ? 0 : sizeof(TransferHead);
  const std::uint64_t slot_bytes = port.slots.view().shape.slot_bytes;
  const std::uint64_t part = std::min(slot_bytes - used, transfer.bytes - sent_);
  std::byte* const place = port.slots.place(used + part);
  if (used > 0) {
    const TransferHead head = head_of(transfer);
    std::memcpy(place, &head, sizeof head);
    if (port.carrier != nullptr && transfer.bytes >= min_held_bytes)
      held_ = port.carrier->hold(transfer.input, transfer.bytes);
  }
  const transport::DeliveryMode delivery = fill(port, place, used, part);
  sent_ += part;
  port.slots.commit(static_cast<std::uint32_t>(used + part),
                    transport::message_flag(port.slots.tail() + 1, transfer_signature), delivery);
}

// Nothing, if the message fits the link, or lies where the peer maps nothing: a send that fits ends
// before its receive begins. Ranks of one process could read it, too, but a call that fails would
// have to wait for them before its caller frees the memory.
transport::Loan Outbox::loan_to(exec::SendPort& port) const {
  const Transfer& transfer = *open_.front().transfer;
  const transport::FifoShape& shape = port.slots.view().shape;
  if (!port.shares_memory || transfer.bytes <= shape.slot_count * shape.slot_bytes ||
      (told_reach(port) & transport::reach_by_mapping) == 0)
    return {};
  const transport::RegionPlace place = regions_.find(transfer.input, transfer.bytes);
  return {.region = place.region,
          .offset = place.offset,
          .bytes = transfer.bytes,
          .signature = transfer_signature,
          .descriptor = place.descriptor};
}

// In place of slots, one that is empty says that the message is lent. See Mailbox::take_lent.
bool Outbox::lend(exec::SendPort& port) {
  if (sent_ > 0) return false;
  const transport::Loan loan = loan_to(port);
  if (loan.region == transport::region_staged) return false;
  transport::Grant& grant = port.slots.view().control->sender_grant;
  grant.loan = loan;
  const std::uint64_t sequence = port.slots.tail() + 1;
  // Pairs with the acquire in Mailbox::take_lent.
  grant.sequence.store(sequence, std::memory_order_release);
  port.slots.commit(0, transport::message_flag(sequence, transfer_signature),
                    transport::DeliveryMode::pull);
  lent_until_ = sequence;
  return true;
}

void Outbox::end_loan(exec::SendPort& port) {
  port.slots.view().control->sender_grant.sequence.store(0, std::memory_order_relaxed);
  sent_ = open_.front().transfer->bytes;
  lent_until_.reset();
}

void Outbox::settle_first(const exec::SendPort& port) {
  const auto [transfer, batch] = open_.front();
  // It may throw: then the transfer is still here, and so is what it lends.
  leaving_.push_back({port.slots.tail(), batch, held_});
  held_ = nullptr;
  open_.pop_front();
  is_begun_ = false;
  sent_ = 0;
  batch->settle(*transfer);
}

// The next bytes, behind those of the slot that are used.
transport::DeliveryMode Outbox::fill(exec::SendPort& port, std::byte* place, std::uint64_t used,
                                     std::uint64_t part) {
  const std::byte* const from = open_.front().transfer->input + sent_;
  if (held_ == nullptr || part < transport::min_lent_bytes) {
    exec::write_paced(port, used + part, [&](bool streamed) {
      kernels::copy_move(from, place + used, part, streamed);
    });
    return transport::DeliveryMode::staged;
  }
  transport::LentParts& parts = lent_parts(port.slots.view(), port.slots.tail());
  parts = {};
  if (used > 0) (void)parts.add({place, 0, used});
  (void)parts.add({from, used, part});
  return transport::DeliveryMode::pull;
}

Status Outbox::advance(exec::SendPort& port, bool& moved) {
  ship(port, moved);
  if (port.connection->needs_progress()) GYRE_TRY(port.connection->progress());
  while (!leaving_.empty() && port.connection->flushed_to(leaving_.front().tail)) {
    leaving_.front().batch->leave();
    leaving_.pop_front();
  }
  return {};
}

bool Outbox::forget(const Batch& batch) {
  const bool ends_first = !open_.empty() && open_.front().batch == &batch;
  bool lends = ends_first && (held_ != nullptr || lent_until_);
  for (const TransferInFlight& one : leaving_)
    lends = lends || (one.batch == &batch && one.held != nullptr);
  if (ends_first) held_.reset(), lent_until_.reset();
  std::erase_if(open_, [&](const PendingTransfer& one) { return one.batch == &batch; });
  std::erase_if(leaving_, [&](const TransferInFlight& one) { return one.batch == &batch; });
  return lends;
}

// A peer that copies finds afterwards that it has copied nothing.
void Outbox::recall(exec::SendPort& port) {
  if (port.carrier != nullptr) return port.carrier->cut_off();
  port.slots.view().control->sender_grant.sequence.store(0, std::memory_order_relaxed);
  // Pairs with the one in Mailbox::take_lent: the caller writes there again.
  std::atomic_thread_fence(std::memory_order_release);
}

}  // namespace gyre::comm
