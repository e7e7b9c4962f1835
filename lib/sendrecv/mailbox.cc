#include "lib/sendrecv/mailbox.h"

#include "kernels/cpu/move.h"
#include "lib/exec/call.h"
#include "lib/sendrecv/inline_message.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {
namespace {

// What may lie unasked for. To let the sender wait at this limit would be no help: the message that
// a receive waits for may be behind.
constexpr std::uint64_t max_kept_bytes = 256ULL << 20;
constexpr std::uint64_t max_message_bytes = 1ULL << 47;
// Of a lent message: what the thread copies before others have a turn, half a millisecond or so.
constexpr std::uint64_t max_lent_turn_bytes = 4ULL << 20;

std::string shown(std::uint64_t bytes, ElementType type) {
  return fmt::format("{} of {}", bytes / element_bytes(type), element_name(type));
}

}  // namespace

// Both ends have to mean the same number of elements of one type.
Status Mailbox::check(const TransferHead& head, const Transfer& receive) const {
  const auto type = static_cast<ElementType>(head.type);
  if (head.bytes == receive.bytes && type == receive.type) return {};
  return Status(Code::Mismatch,
                fmt::format("rank {} sends {}, and this rank receives {}{}", peer_,
                            shown(head.bytes, type), shown(receive.bytes, receive.type),
                            head.tag != 0 ? fmt::format(" (tag {})", head.tag) : ""))
      .blame({peer_});
}

void Mailbox::tell_source(const TransferHead& head, const Transfer& receive) const {
  if (receive.source != nullptr) *receive.source = peer_;
  if (receive.received_tag != nullptr) *receive.received_tag = head.tag;
}

Status Mailbox::give(const Message& kept, const Transfer& receive) {
  GYRE_TRY(check(kept.head, receive));
  if (!kept.kept.empty()) kernels::copy_move(kept.kept.data(), receive.output, kept.kept.size());
  kept_bytes_ -= kept.kept.size();
  tell_source(kept.head, receive);
  return {};
}

Result<bool> Mailbox::give_kept(const PendingTransfer& receive) {
  const auto found = std::ranges::find_if(kept_, [&](const Message& message) {
    return receive.transfer->takes(peer_, message.head.tag);
  });
  if (found == kept_.end()) return false;
  GYRE_TRY(give(*found, *receive.transfer));
  receive.batch->settle(*receive.transfer);
  kept_.erase(found);
  return true;
}

Status Mailbox::malformed() const {
  return Status(Code::RemoteError, fmt::format("rank {} sent a malformed message", peer_))
      .blame({peer_});
}

Status Mailbox::begin(const TransferHead& head) {
  if (head.tag < 0 || head.type >= element_type_count || head.bytes > max_message_bytes)
    return malformed();
  Message message;
  message.head = head;
  message.pace = &paces_.of(head.bytes);
  message.streamed = message.pace->begin_call();
  message.receive = receives_.take(peer_, head.tag);
  if (message.receive) {
    GYRE_TRY(check(head, *message.receive->transfer));
  } else {
    kept_bytes_ += head.bytes;
    if (kept_bytes_ > max_kept_bytes)
      return Status(Code::Mismatch,
                    fmt::format("messages that no receive of this rank asks for take {} bytes with "
                                "the last one, from rank {} with tag {}, and at most {} bytes are "
                                "kept: begin their receives earlier, or send them later",
                                kept_bytes_, peer_, head.tag, max_kept_bytes))
          .blame({peer_});
  }
  arriving_ = std::move(message);
  return {};
}

// A receive for what came unasked may have been begun while it came.
Status Mailbox::end(Message message) {
  message.pace->end_call();
  if (message.receive) {
    tell_source(message.head, *message.receive->transfer);
    receives_.finish(*message.receive);
  } else if (const auto receive = receives_.take(peer_, message.head.tag)) {
    GYRE_TRY(give(message, *receive->transfer));
    receives_.finish(*receive);
  } else {
    kept_.push_back(std::move(message));
  }
  return {};
}

// Memory for what nobody has asked for yet grows with what comes, not by the peer's word.
std::byte* Mailbox::place_for(Message& message, std::uint64_t more) const {
  if (message.receive) return message.receive->transfer->output + message.here;
  message.kept.resize(message.here + more);
  return message.kept.data() + message.here;
}

Status Mailbox::take_slot(const transport::SlotHeader& note) {
  std::uint64_t offset = 0;
  if (!arriving_) {
    offset = sizeof(TransferHead);
    if (note.bytes < offset) return malformed();
    const auto head = transport::copied<TransferHead>(port_.slots.place(note.bytes));
    if (note.bytes - offset > head.bytes) return malformed();
    GYRE_TRY(begin(head));
  }
  Message& message = *arriving_;
  const std::uint64_t part = note.bytes - offset;
  if (part > message.head.bytes - message.here)
    return Status(Code::RemoteError,
                  fmt::format("rank {} sent more bytes than it announced", peer_))
        .blame({peer_});
  std::byte* const place = place_for(message, part);
  const std::byte* const from = port_.slots.place(note.bytes) + offset;
  if (part > 0)
    message.pace->time(part, [&] { kernels::copy_move(from, place, part, message.streamed); });
  message.here += part;
  port_.slots.release();
  if (message.here < message.head.bytes) return {};
  return end(*std::exchange(arriving_, std::nullopt));
}

// Of the payload of a message whose head was in a line. Its sender may fail meanwhile, and have
// other values there since, as in Launch::was_lent.
Status Mailbox::take_lent() {
  const transport::Grant& grant = port_.slots.view().control->sender_grant;
  const std::uint64_t sequence = port_.slots.head() + 1;
  if (!arriving_ || (arriving_->here > 0 && arriving_->lent_as != sequence)) return malformed();
  Message& message = *arriving_;
  message.lent_as = sequence;
  // Pairs with the release in Outbox::lend.
  const bool is_lent = grant.sequence.load(std::memory_order_acquire) == sequence;
  const Status copied = is_lent ? copy_lent(message, grant.read()) : Status();
  // Pairs with the one in Outbox::recall.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!is_lent || grant.sequence.load(std::memory_order_relaxed) != sequence)
    return Status(Code::RemoteError, fmt::format("rank {} gave a message up before all of it was "
                                                 "copied",
                                                 peer_))
        .blame({peer_});
  if (!copied.ok() || message.here < message.head.bytes) return copied;
  port_.slots.release();
  return end(*std::exchange(arriving_, std::nullopt));
}

// The next part.
Status Mailbox::copy_lent(Message& message, const transport::Loan& loan) {
  const bool is_region = loan.region > transport::region_copied;
  if (loan.bytes != message.head.bytes || !is_region || port_.peer_memory == nullptr)
    return malformed();
  GYRE_ASSIGN(const std::byte* const from, port_.peer_memory->at(loan, message.lent_as));
  if (from == nullptr) return malformed();
  const std::uint64_t part = std::min(loan.bytes - message.here, max_lent_turn_bytes);
  std::byte* const place = place_for(message, part);
  message.pace->time(
      part, [&] { kernels::copy_move(from + message.here, place, part, message.streamed); });
  message.here += part;
  return {};
}

// Whether the slot that comes so much later is one of ours.
bool Mailbox::is_ours(const transport::SlotHeader& note, std::uint64_t later,
                      transport::DeliveryMode delivery) const {
  return note.flag == transport::message_flag(port_.slots.head() + later + 1, transfer_signature) &&
         note.delivery == delivery && transport::note_fits(note, port_.slots.view().shape);
}

Status Mailbox::take_slots(bool& moved) {
  while (receives_.await(peer_) && port_.slots.has_message()) {
    const transport::SlotHeader note = port_.slots.note();
    if (is_ours(note, 0, transport::DeliveryMode::pull))
      GYRE_TRY(take_lent());
    else if (is_ours(note, 0))
      GYRE_TRY(take_slot(note));
    else
      return malformed();
    moved = true;
    // A line has the next head; or others have a turn, as the rest of a lent message is long.
    if (arriving_ ? arriving_->lent_as != 0 : port_.shares_memory) return {};
  }
  return {};
}

// A message with its payload, or the head of one in slots.
Status Mailbox::take_lines(bool& moved) {
  using Seen = transport::MessageState;
  Seen seen = port_.lines.poll_lines(1, transfer_signature);
  if (seen == Seen::waiting) return {};
  if (seen == Seen::other_call) return malformed();
  const auto head = transport::copied<TransferHead>(port_.lines.place());
  seen = port_.lines.poll_lines(message_lines(head.bytes), transfer_signature);
  if (seen == Seen::waiting) return {};
  if (seen == Seen::other_call) return malformed();
  GYRE_TRY(begin(head));
  moved = true;
  if (!is_inline(head.bytes)) {
    port_.lines.release_lines(1);
    return {};
  }
  Message& message = *arriving_;
  read_lines(port_.lines, head.bytes, place_for(message, head.bytes));
  message.here = head.bytes;
  return end(*std::exchange(arriving_, std::nullopt));
}

bool Mailbox::is_for(const TransferHead& head, const Transfer& receive) {
  return head.bytes == receive.bytes && head.type == static_cast<std::uint8_t>(receive.type) &&
         head.tag >= 0 && (receive.tag == any_tag || receive.tag == head.tag);
}

Mailbox::Taken Mailbox::take_now(const Transfer& receive) {
  using Seen = transport::MessageState;
  if (!port_.shares_memory) return take_slot_now(receive);
  Seen seen = port_.lines.poll_lines(1, transfer_signature);
  if (seen == Seen::waiting) return Taken::not_here;
  const auto head = transport::copied<TransferHead>(port_.lines.place());
  if (seen != Seen::here || !is_for(head, receive)) return Taken::other;
  if (!is_inline(receive.bytes)) {
    const Taken taken = take_payload_now(receive);
    if (taken == Taken::taken) tell_source(head, receive);
    return taken;
  }
  const std::uint32_t lines = message_lines(receive.bytes);
  if (lines > 1) {
    seen = port_.lines.poll_lines(lines, transfer_signature);
    if (seen != Seen::here) return seen == Seen::waiting ? Taken::not_here : Taken::other;
  }
  read_lines(port_.lines, receive.bytes, receive.output);
  tell_source(head, receive);
  return Taken::taken;
}

// With its head. An error of the wire is for `advance`, too.
Mailbox::Taken Mailbox::take_slot_now(const Transfer& receive) {
  transport::SlotReader& slots = port_.slots;
  if (!slots.has_message()) {
    if (!port_.connection->progress().ok()) return Taken::other;
    if (!slots.has_message()) return Taken::not_here;
  }
  const transport::SlotHeader note = slots.note();
  const std::uint64_t bytes = sizeof(TransferHead) + receive.bytes;
  if (!is_ours(note, 0) || note.bytes != bytes) return Taken::other;
  const std::byte* const place = slots.place(bytes);
  const auto head = transport::copied<TransferHead>(place);
  if (!is_for(head, receive)) return Taken::other;
  kernels::copy_move(place + sizeof head, receive.output, receive.bytes);
  slots.release();
  tell_source(head, receive);
  return Taken::taken;
}

// From slots, behind its head. Looks at all of them before it takes the first.
Mailbox::Taken Mailbox::take_payload_now(const Transfer& receive) {
  transport::SlotReader& slots = port_.slots;
  const std::uint64_t slot_bytes = slots.view().shape.slot_bytes;
  const std::uint64_t count = payload_slots(receive.bytes, slots.view().shape);
  if (!slots.has_messages(count)) return Taken::not_here;
  const auto part_of = [&](std::uint64_t slot) {
    return std::min(slot_bytes, receive.bytes - slot * slot_bytes);
  };
  for (std::uint64_t slot = 0; slot < count; ++slot) {
    const transport::SlotHeader note = slots.note(slot);
    if (!is_ours(note, slot) || note.bytes != part_of(slot)) return Taken::other;
  }
  port_.lines.release_lines(1);
  for (std::uint64_t slot = 0; slot < count; ++slot) {
    kernels::copy_move(slots.place(part_of(slot)), receive.output + slot * slot_bytes,
                       part_of(slot));
    slots.release();
  }
  return Taken::taken;
}

bool Mailbox::has_something() {
  if (!port_.shares_memory || arriving_) return port_.slots.has_message();
  return port_.lines.poll_lines(1, transfer_signature) != transport::MessageState::waiting;
}

Status Mailbox::advance(bool& moved) {
  if (!port_.shares_memory) return take_slots(moved);
  while (receives_.await(peer_)) {
    bool took = false;
    GYRE_TRY(arriving_ ? take_slots(took) : take_lines(took));
    moved |= took;
    if (!took || (arriving_ && arriving_->lent_as != 0)) return {};
  }
  return {};
}

}  // namespace gyre::comm
