#include "transports/rdma/note.h"

#include <fmt/core.h>

namespace gyre::transport {

std::string note_fault(const RdmaNote& note, std::uint64_t expected_sequence,
                       std::uint64_t slot_bytes) {
  if (note.sequence != expected_sequence)
    return fmt::format("message number {}; expected {}", note.sequence, expected_sequence);
  if (note.bytes > slot_bytes)
    return fmt::format("{} bytes of payload; a slot has {}", note.bytes, slot_bytes);
  if (note.is_packed > 1) return fmt::format("unknown packing {}", note.is_packed);
  if (note.is_packed == 1 && note.bytes > sizeof NotePlace::payload)
    return fmt::format("{} bytes beside its note; at most {} fit", note.bytes,
                       sizeof NotePlace::payload);
  if (note.is_packed == 1 && note.pieces > 0)
    return fmt::format("{} pieces of a message beside its note", note.pieces);
  return {};
}

}  // namespace gyre::transport
