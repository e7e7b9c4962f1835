#include "transports/rdma/note.h"

#include "transports/rdma/queues.h"

#include <fmt/core.h>

#include <cstdint>

namespace gyre::transport {

std::string note_fault(const RdmaNote& note, std::uint64_t expected_sequence,
                       std::uint64_t slot_bytes) {
  if (note.sequence != expected_sequence)
    return fmt::format("message number {}; expected {}", note.sequence, expected_sequence);
  if (note.bytes > slot_bytes)
    return fmt::format("{} bytes of payload; a slot has {}", note.bytes, slot_bytes);
  if (note.place > PayloadPlace::lent)
    return fmt::format("unknown place {}", static_cast<int>(note.place));
  const bool is_beside = note.place == PayloadPlace::note;
  if (is_beside && note.bytes > sizeof NotePlace::payload)
    return fmt::format("{} bytes beside its note; at most {} fit", note.bytes,
                       sizeof NotePlace::payload);
  if (is_beside && note.pieces > 0)
    return fmt::format("{} pieces of a message beside its note", note.pieces);
  return {};
}

bool lends_the_same(const RdmaGrant& one, const RdmaGrant& other) {
  return one.sequence == other.sequence && one.address == other.address && one.bytes == other.bytes;
}

std::string grant_fault(const RdmaGrant& grant, std::uint32_t number) {
  if ((grant.sequence & Notice::mask) != number)
    return fmt::format("call number {}; the notice says {}", grant.sequence, number);
  if (grant.bytes > UINT64_MAX - grant.address)
    return fmt::format("{} bytes at {:#x}", grant.bytes, grant.address);
  if (grant.stores_all > 1) return fmt::format("unknown promise {}", grant.stores_all);
  return {};
}

}  // namespace gyre::transport
