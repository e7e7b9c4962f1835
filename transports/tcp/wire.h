// The header before each message on a tcp connection, or before a part of one, little-endian, and
// the conditions for accepting one. Version 4. A change of layout or meaning is a new version.
#pragma once

#include "lib/base/checksum.h"
#include "lib/base/settings.h"
#include "lib/transport/transport.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gyre::transport {

struct WireHeader {
  // Where GYRE_TCP_CHECKSUM is set: of this header, with 0 in this place, and of what follows.
  std::uint32_t checksum = 0;
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
  std::uint64_t place = 0;   // there, in bytes; of the whole message
  std::uint32_t offset = 0;  // in the message, of what follows
  std::uint32_t bytes = 0;   // of payload, which follows at once
};
static_assert(sizeof(WireHeader) == 64 && alignof(WireHeader) == 8);
static_assert(std::has_unique_object_representations_v<WireHeader>, "no padding on the wire");
static_assert(std::endian::native == std::endian::little, "written in memory order");

inline constexpr std::uint16_t wire_version = 4;

// Sockets of a connection.
inline constexpr std::size_t max_rails = Settings::max_tcp_sockets;

namespace wire_flag {
// It is final: every receiver stores it as it comes. Without this one, some only.
inline constexpr std::uint8_t final = 1;
// The message does not end with this part of it.
inline constexpr std::uint8_t more = 2;
}  // namespace wire_flag

// All that a link's headers share; the rest is each message's own.
WireHeader common_header(const LinkKey& key, const TransportEnvironment& environment);
// Of a header, with 0 for its own checksum. What follows it is to be added.
Checksum begin_checksum(WireHeader header);
// The number of the next message on a socket.
struct ExpectedMessage {
  std::uint64_t first = 0;
  bool is_exact = true;  // else a later one is right as well
};
// What is wrong with a header, against this link's common one; empty if nothing is. Its checksum
// can be compared when the payload is there.
std::string wire_fault(const WireHeader& header, const WireHeader& common,
                       const ExpectedMessage& expected, std::uint64_t max_bytes);

}  // namespace gyre::transport
