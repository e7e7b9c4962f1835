// The header before each message on a tcp connection, little-endian, and the conditions for
// accepting one. Version 2. A change of layout or meaning is a new version.
#pragma once

#include "lib/transport/transport.h"

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gyre::transport {

struct WireHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  TrafficClass traffic{};
  std::uint8_t flags = 0;  // wire_flag
  std::uint64_t communicator_hash = 0;
  std::uint32_t epoch = 0;
  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;   // of its slot: one more than the message before it
  std::uint64_t signature = 0;  // the slot note's flag
  // Of the call in whose receiver's output it has a place: its sequence + 1. Zero: it has none.
  std::uint64_t call = 0;
  std::uint64_t place = 0;  // there, in bytes
  std::uint64_t bytes = 0;  // of payload, which follows at once
};
static_assert(sizeof(WireHeader) == 64 && alignof(WireHeader) == 8);
static_assert(std::has_unique_object_representations_v<WireHeader>, "no padding on the wire");
static_assert(std::endian::native == std::endian::little, "written in memory order");

inline constexpr std::uint32_t wire_magic = 0x31575947;  // "GYW1" in memory
inline constexpr std::uint16_t wire_version = 2;

namespace wire_flag {
// It is final: every receiver stores it as it comes. Without this one, some only.
inline constexpr std::uint8_t final = 1;
}  // namespace wire_flag

// All that a link's headers share; the rest is each message's own.
WireHeader common_header(const LinkKey& key, const TransportEnvironment& environment);
// What is wrong with a header, against this link's common one; empty if nothing is.
std::string wire_fault(const WireHeader& header, const WireHeader& common,
                       std::uint64_t expected_sequence, std::uint64_t max_bytes);

}  // namespace gyre::transport
