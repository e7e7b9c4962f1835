#include "lib/comm/mailbox.h"

#include "kernels/cpu/move.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

// What may lie unasked for: a sender that runs ahead of its receiver without end is an error.
constexpr std::uint64_t kept_most_bytes = 256ULL << 20;
constexpr std::uint64_t message_most_bytes = 1ULL << 47;

void copy_bytes(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  if (bytes == 0) return;
  const void* source = from;
  void* target = to;
  kernels::Move act;
  act.sources = &source;
  act.source_count = 1;
  act.targets = &target;
  act.target_count = 1;
  act.count = bytes;
  kernels::copy_move(act);
}

std::string shown(std::uint64_t bytes, ElementType type) {
  return fmt::format("{} of {}", bytes / element_bytes(type), element_name(type));
}

}  // namespace

bool Mailbox::is_wanted(std::span<const PendingReceiveRef> receives) const {
  return std::ranges::any_of(receives, [&](const PendingReceiveRef& one) {
    return !one->done && (one->transfer->peer == any_source || one->transfer->peer == peer_);
  });
}

// Both ends have to mean the same number of elements of one type.
Status Mailbox::take(Message& message, PendingReceive& receive) const {
  const Transfer& transfer = *receive.transfer;
  const auto type = static_cast<ElementType>(message.head.type);
  if (message.head.bytes != transfer.bytes || type != transfer.type)
    return Status(
               Code::Mismatch,
               fmt::format("rank {} sends {}, and this rank receives {}{}", peer_,
                           shown(message.head.bytes, type), shown(transfer.bytes, transfer.type),
                           message.head.tag != 0 ? fmt::format(" (tag {})", message.head.tag) : ""))
        .blame({peer_});
  receive.taken = true;
  message.receive = &receive;
  message.place = transfer.output;
  return {};
}

void Mailbox::finish(Message& message) const {
  PendingReceive& receive = *message.receive;
  if (receive.transfer->source != nullptr) *receive.transfer->source = peer_;
  if (receive.transfer->received_tag != nullptr) *receive.transfer->received_tag = message.head.tag;
  receive.done = true;
}

Status Mailbox::give_kept(std::span<const PendingReceiveRef> receives, bool& moved,
                          std::uint64_t& kept) {
  for (const PendingReceiveRef& one : receives) {
    PendingReceive& receive = *one;
    if (receive.taken) continue;
    const auto found = std::ranges::find_if(waiting_, [&](const auto& message) {
      return receive.transfer->takes(peer_, message->head.tag);
    });
    if (found == waiting_.end()) continue;
    Message& message = **found;
    GYRE_TRY(take(message, receive));
    copy_bytes(message.kept.data(), message.place, message.head.bytes);
    finish(message);
    kept -= message.kept.size();
    waiting_.erase(found);
    moved = true;
  }
  return {};
}

Status Mailbox::begin(std::span<const PendingReceiveRef> receives, std::uint64_t& kept,
                      std::uint64_t slot_bytes) {
  auto message = std::make_unique<Message>();
  TransferHead& head = message->head;
  if (slot_bytes >= sizeof head) std::memcpy(&head, port_.slots.place(), sizeof head);
  if (slot_bytes < sizeof head || head.tag < 0 || head.type >= element_type_count ||
      head.bytes > message_most_bytes || slot_bytes - sizeof head > head.bytes)
    return Status(Code::RemoteError, fmt::format("rank {} sent a malformed message", peer_))
        .blame({peer_});
  for (const PendingReceiveRef& receive : receives) {
    if (receive->taken || !receive->transfer->takes(peer_, head.tag)) continue;
    GYRE_TRY(take(*message, *receive));
    break;
  }
  if (message->receive == nullptr) {
    kept += head.bytes;
    if (kept > kept_most_bytes)
      return Status(Code::RemoteError,
                    fmt::format("rank {} has sent {} MiB that nobody here has asked for; the last "
                                "message has tag {}",
                                peer_, kept >> 20, head.tag))
          .blame({peer_});
  }
  arriving_ = std::move(message);
  return {};
}

Status Mailbox::advance(std::span<const PendingReceiveRef> receives, bool& moved,
                        std::uint64_t& kept) {
  GYRE_TRY(give_kept(receives, moved, kept));
  while (is_wanted(receives) && port_.slots.has_message()) {
    const transport::SlotNote note = port_.slots.note();
    const bool ours =
        note.flag == transport::message_flag(port_.slots.head() + 1, transfer_signature) &&
        note.delivery == transport::Delivery::staged &&
        transport::note_fits(note, port_.slots.view().shape);
    if (!ours)
      return Status(Code::RemoteError, fmt::format("rank {} sent a malformed message", peer_))
          .blame({peer_});
    std::uint64_t offset = 0;
    if (arriving_ == nullptr) {
      GYRE_TRY(begin(receives, kept, note.bytes));
      offset = sizeof(TransferHead);
    }
    Message& message = *arriving_;
    const std::uint64_t part = note.bytes - offset;
    if (part > message.head.bytes - message.here)
      return Status(Code::RemoteError, fmt::format("rank {} sent more than it said", peer_))
          .blame({peer_});
    // Memory for what nobody has asked for yet grows with what comes, not by the peer's word.
    if (message.receive == nullptr) {
      message.kept.resize(message.here + part);
      message.place = message.kept.data();
    }
    copy_bytes(port_.slots.place() + offset, message.place + message.here, part);
    message.here += part;
    port_.slots.release();
    moved = true;
    if (message.here < message.head.bytes) continue;
    if (message.receive != nullptr) {
      finish(message);
    } else {
      waiting_.push_back(std::move(arriving_));
      GYRE_TRY(give_kept(receives, moved, kept));
    }
    arriving_.reset();
  }
  return {};
}

}  // namespace gyre::comm
