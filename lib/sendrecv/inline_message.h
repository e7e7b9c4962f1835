// How messages of sends lie on a link whose two ends share memory: the head of each in a line. A
// short message follows its head in the same line, and in the next ones; a longer one lies in slots
// as on any other link.
#pragma once

#include "lib/call/transfer.h"
#include "lib/exec/port.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gyre::comm {

inline constexpr std::uint32_t max_inline_lines = 8;
inline constexpr std::uint64_t max_inline_bytes =
    max_inline_lines * transport::line_payload_bytes - sizeof(TransferHead);

constexpr bool is_inline(std::uint64_t bytes) { return bytes <= max_inline_bytes; }
// How many lines a message takes.
constexpr std::uint32_t message_lines(std::uint64_t bytes) {
  return is_inline(bytes) ? transport::lines_for(sizeof(TransferHead) + bytes) : 1;
}

inline TransferHead head_of(const Transfer& transfer) {
  return {transfer.bytes, transfer.tag, static_cast<std::uint8_t>(transfer.type), {}};
}

// There is credit for them.
inline void write_lines(transport::LineWriter& lines, const TransferHead& head,
                        const std::byte* payload) {
  const std::uint32_t count = message_lines(head.bytes);
  if (count == 1) [[likely]] {
    std::memcpy(lines.place(), &head, sizeof head);
    if (is_inline(head.bytes))
      transport::copy_within_line(lines.place() + sizeof head, payload,
                                  static_cast<std::uint32_t>(head.bytes));
    return lines.commit_line(transfer_signature);
  }
  std::array<std::byte, max_inline_lines * transport::line_payload_bytes> message;
  std::memcpy(message.data(), &head, sizeof head);
  std::memcpy(message.data() + sizeof head, payload, head.bytes);
  lines.write(message.data(), sizeof head + head.bytes, transfer_signature);
}

// All its lines are here.
inline void read_lines(transport::LineReader& lines, std::uint64_t bytes, std::byte* place) {
  const std::uint32_t count = message_lines(bytes);
  if (count == 1) [[likely]] {
    transport::copy_within_line(place, lines.place() + sizeof(TransferHead),
                                static_cast<std::uint32_t>(bytes));
  } else {
    std::array<std::byte, max_inline_lines * transport::line_payload_bytes> message;
    (void)lines.read(sizeof(TransferHead) + bytes, message.data());
    std::memcpy(place, message.data() + sizeof(TransferHead), bytes);
  }
  lines.release_lines(count);
}

}  // namespace gyre::comm
