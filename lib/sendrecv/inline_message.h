// How short messages of sends lie on a link. Where its two ends share memory: the head of each in a
// line. A short message follows its head in the same line, and in the next ones; a longer one lies
// in slots as on any other link. There the head lies in the message's first slot.
#pragma once

#include "lib/call/transfer.h"
#include "lib/exec/port.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gyre::comm {

inline constexpr transport::FlagSignature transfer_flags{transfer_signature};
inline constexpr std::uint32_t max_inline_lines = 10;
inline constexpr std::uint64_t max_inline_bytes =
    max_inline_lines * transport::line_payload_bytes - sizeof(TransferHead);

inline constexpr std::uint64_t first_line_bytes =
    transport::line_payload_bytes - sizeof(TransferHead);

constexpr bool is_inline(std::uint64_t bytes) { return bytes <= max_inline_bytes; }
// How many lines a message takes.
constexpr std::uint32_t message_lines(std::uint64_t bytes) {
  return is_inline(bytes) ? transport::lines_for(sizeof(TransferHead) + bytes) : 1;
}
// How many slots the payload of a longer one takes.
constexpr std::uint64_t payload_slots(std::uint64_t bytes, const transport::FifoShape& shape) {
  return is_inline(bytes) ? 0 : (bytes + shape.slot_bytes - 1) / shape.slot_bytes;
}

inline TransferHead head_of(const Transfer& transfer) {
  return {transfer.bytes, transfer.tag, static_cast<std::uint8_t>(transfer.type), {}};
}

// There is credit for it: the head, and as much of the payload as fits its line.
[[gnu::always_inline]] inline void write_first_line(transport::LineWriter& lines,
                                                    const TransferHead& head,
                                                    const std::byte* payload,
                                                    std::uint64_t payload_bytes) {
  std::byte* const place = lines.place();
  std::memcpy(place, &head, sizeof head);
  transport::copy_within_line(place + sizeof head, payload,
                              static_cast<std::uint32_t>(payload_bytes));
  lines.commit_line(transfer_flags);
}

// There is credit for them.
inline void write_lines(transport::LineWriter& lines, const TransferHead& head,
                        const std::byte* payload) {
  if (!is_inline(head.bytes)) return write_first_line(lines, head, nullptr, 0);
  const std::uint64_t first = std::min<std::uint64_t>(head.bytes, first_line_bytes);
  write_first_line(lines, head, payload, first);
  for (std::uint64_t at = first; at < head.bytes; at += transport::line_payload_bytes) {
    const std::uint64_t part =
        std::min<std::uint64_t>(head.bytes - at, transport::line_payload_bytes);
    transport::copy_part_of_lines(lines.place(), payload + at, part);
    lines.commit_line(transfer_flags);
  }
}

// All its lines are here.
inline void read_lines(transport::LineReader& lines, std::uint64_t bytes, std::byte* place) {
  const std::uint64_t first = std::min<std::uint64_t>(bytes, first_line_bytes);
  transport::copy_within_line(place, lines.place() + sizeof(TransferHead),
                              static_cast<std::uint32_t>(first));
  std::uint32_t line = 1;
  for (std::uint64_t at = first; at < bytes; at += transport::line_payload_bytes, ++line) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes - at, transport::line_payload_bytes);
    transport::copy_part_of_lines(place + at, lines.place(line), part);
  }
  lines.release_lines(line);
}

// How many slots of one message are written before its receiver is told. More are read while others
// are still written, unless both ends write first: then neither has time to read.
inline constexpr std::uint32_t max_slots_one_way = 4;
inline constexpr std::uint32_t max_slots_both_ways = 16;

// Whether all of a message may be here at one time, and whether there is room for it now.
constexpr bool fits(std::uint64_t bytes, const transport::FifoShape& shape,
                    std::uint32_t max_slots) {
  return payload_slots(bytes, shape) <= std::min(shape.slot_count, max_slots);
}
// On a link whose ends share no memory, one that is alone in its slot.
constexpr bool fits_slot(std::uint64_t bytes, const transport::FifoShape& shape) {
  return bytes <= shape.slot_bytes - sizeof(TransferHead);
}
inline bool has_room(exec::SendPort& port, std::uint64_t bytes, std::uint32_t max_slots) {
  const transport::FifoShape& shape = port.slots.view().shape;
  if (!port.shares_memory) return fits_slot(bytes, shape) && port.slots.has_credit();
  if (!port.lines.has_credit(message_lines(bytes))) return false;
  return is_inline(bytes) ||
         (fits(bytes, shape, max_slots) && port.slots.has_credit(payload_slots(bytes, shape)));
}

// The payload in slots. There is room for it.
void write_slots(exec::SendPort& port, const std::byte* payload, std::uint64_t bytes);

// Head and payload in one slot. There is room for it.
void write_slot(exec::SendPort& port, const Transfer& transfer);

// All of a message. There is room for it. The payload comes before the head, so that a receiver
// who sees the head finds the rest.
inline void write_message(exec::SendPort& port, const Transfer& transfer) {
  if (!port.shares_memory) return write_slot(port, transfer);
  if (!is_inline(transfer.bytes)) write_slots(port, transfer.input, transfer.bytes);
  write_lines(port.lines, head_of(transfer), transfer.input);
}

}  // namespace gyre::comm
