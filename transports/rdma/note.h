// RdmaNote: what a sender writes of each message into the receiver's memory, with the message
// itself if that is short. RdmaGrant: what a receiver writes into the sender's memory, of the
// memory that its caller lends for one call. The end that gets one copies it, and checks the copy.
#pragma once

#include "lib/transport/slots.h"
#include "transports/rdma/address.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gyre::transport {

enum class PayloadPlace : std::uint16_t {
  slot,
  note,  // behind the note
  lent,  // in what the receiver lends
};

struct RdmaNote {
  std::uint64_t sequence = 0;   // of the message
  std::uint64_t signature = 0;  // the slot note's flag
  std::uint32_t bytes = 0;      // of payload
  std::uint16_t pieces = 0;     // of the payload that come over other queue pairs
  PayloadPlace place = PayloadPlace::slot;
};
static_assert(sizeof(RdmaNote) == 24 && std::has_unique_object_representations_v<RdmaNote>);

// One for each message that may be on its way, in a ring.
struct NotePlace {
  RdmaNote note;
  std::array<std::byte, 232> payload;
};
static_assert(sizeof(NotePlace) == 256);

struct RdmaGrant {
  std::uint64_t sequence = 0;  // of the call, and 1
  std::uint64_t signature = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;                      // 0: nothing is lent
  std::uint64_t stores_all = 0;                 // 1: see Loan
  std::array<std::uint32_t, max_rails> keys{};  // by rail
};
static_assert(sizeof(RdmaGrant) == 56 && std::has_unique_object_representations_v<RdmaGrant>);
static_assert(sizeof(RdmaGrant) <= sizeof(NotePlace));

// Whether a grant is another one again: it is repeated when a rail is lost, by what keys are left.
bool lends_the_same(const RdmaGrant& one, const RdmaGrant& other);

// What is wrong with a grant whose notice has that number; empty if nothing is.
std::string grant_fault(const RdmaGrant& grant, std::uint32_t number);

// What is wrong with a note for the message of that number; empty if nothing is.
std::string note_fault(const RdmaNote& note, std::uint64_t expected_sequence,
                       std::uint64_t slot_bytes);

}  // namespace gyre::transport
