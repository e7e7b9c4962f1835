#include "transports/tcp/inbound.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace gyre::transport {

Result<std::byte*> InboundMessages::claim(const WireHeader& header) {
  EarlyMessage& message = early(header.sequence);
  if (message.data == nullptr) message = begin(header);
  if (!message.fits(header))
    return Status(Code::RemoteError,
                  fmt::format("bytes {} to {} of message {} do not fit what has come of it",
                              header.offset, header.offset + header.bytes, header.sequence));
  message.add(header);
  return message.data + header.offset;
}

bool InboundMessages::EarlyMessage::fits(const WireHeader& part) const {
  const std::uint32_t end = part.offset + part.bytes;
  const bool is_last = (part.flags & wire_flag::more) == 0;
  const bool fits_end = has_end ? !is_last && end <= bytes : !is_last || end >= bytes;
  const auto others = std::span(parts).first(part_count);
  return fits_end && end <= room && part.signature == signature && part_count < parts.size() &&
         std::ranges::none_of(others, [&](const Bounds& other) {
           return part.offset < other.end && other.offset < end;
         });
}

void InboundMessages::EarlyMessage::add(const WireHeader& part) {
  const std::uint32_t end = part.offset + part.bytes;
  parts[part_count++] = {part.offset, end};
  bytes = std::max(bytes, end);
  has_end |= (part.flags & wire_flag::more) == 0;
}

InboundMessages::EarlyMessage InboundMessages::begin(const WireHeader& header) {
  ++begun_;
  EarlyMessage message;
  message.signature = header.signature;
  if (is_for_loan(header)) {
    message.delivery = DeliveryMode::push;
    message.data = reinterpret_cast<std::byte*>(loan_.offset) + header.place;
    message.room = loan_.bytes - header.place;
  } else {
    message.delivery = DeliveryMode::staged;
    message.data = fifo_.slot(header.sequence);
    message.room = fifo_.shape.slot_bytes;
  }
  return message;
}

// A message of a later call may come while this rank is still in an earlier one.
bool InboundMessages::is_for_loan(const WireHeader& header) const {
  const bool is_stored = (header.flags & wire_flag::final) != 0 || loan_.stores_all != 0;
  const bool is_of_call = header.call != 0 && header.call == lent_to_ &&
                          header.signature == message_flag(header.sequence + 1, loan_.signature);
  const std::uint64_t end = std::uint64_t{header.offset} + header.bytes;
  const bool fits = header.place <= loan_.bytes && end <= loan_.bytes - header.place;
  return loan_.region == region_same_process && is_of_call && is_stored && fits;
}

void InboundMessages::take(const WireHeader& header) {
  early(header.sequence).landed += header.bytes;
  while (early(out_.tail()).is_whole()) {
    EarlyMessage& next = early(out_.tail());
    const EarlyMessage whole = next;
    next = {};
    --begun_;
    out_.commit(whole.bytes, whole.signature, whole.delivery);
  }
}

}  // namespace gyre::transport
