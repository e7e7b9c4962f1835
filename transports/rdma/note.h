// RdmaNote: what a sender writes of each message into the receiver's memory, with the message
// itself if that is short. The receiver copies and checks it.
#pragma once

#include "lib/transport/slots.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gyre::transport {

struct RdmaNote {
  std::uint64_t sequence = 0;   // of the message
  std::uint64_t signature = 0;  // the slot note's flag
  std::uint32_t bytes = 0;      // of payload
  std::uint16_t pieces = 0;     // of the payload that come over other queue pairs
  std::uint16_t is_packed = 0;  // 1: the payload follows the note; 0: it is in the slot
};
static_assert(sizeof(RdmaNote) == 24 && std::has_unique_object_representations_v<RdmaNote>);

// One for each message that may be on its way, in a ring.
struct NotePlace {
  RdmaNote note;
  std::array<std::byte, 232> payload;
};
static_assert(sizeof(NotePlace) == 256);

// What is wrong with a note for the message of that number; empty if nothing is.
std::string note_fault(const RdmaNote& note, std::uint64_t expected_sequence,
                       std::uint64_t slot_bytes);

}  // namespace gyre::transport
