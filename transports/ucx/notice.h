// UcpNotice: what stands before every message between two engines, and tells what it is. Also
// UcpPlace: where an end is, as it travels in endpoints and hellos. The end that gets one copies
// it, and checks the copy.
#pragma once

#include "lib/trust/tickets.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace gyre::transport {

enum class UcpNoticeKind : std::uint8_t {
  hello,    // sender: who it is; with its ticket and place
  message,  // sender: a part of the message of that number; with its bytes
  credit,   // receiver: slots below that number are free
  ask,      // sender: a credit is wanted as soon as there is one
  sweep,    // sender: nothing; it leaves after what came before it
  closing,  // either end: nothing more comes; the number of the next message
};
inline constexpr std::uint8_t ucp_notice_kinds = 6;

struct UcpNotice {
  std::uint32_t magic = ucp_magic;
  std::uint16_t version = ucp_version;
  UcpNoticeKind kind = UcpNoticeKind::hello;
  std::uint8_t reserved = 0;
  std::uint64_t link = 0;       // of the end that it is for: a random number
  std::uint64_t number = 0;     // of a message
  std::uint64_t signature = 0;  // of a message: the slot note's flag
  std::uint32_t offset = 0;     // of the part in its message
  std::uint32_t whole = 0;      // bytes of that message

  static constexpr std::uint32_t ucp_magic = 0x31555947;  // "GYU1" in memory
  static constexpr std::uint16_t ucp_version = 2;
};
static_assert(sizeof(UcpNotice) == 40 && std::has_unique_object_representations_v<UcpNotice>);
static_assert(std::endian::native == std::endian::little, "written in memory order");

// Nothing if it is none of this version.
std::optional<UcpNotice> read_ucp_notice(std::span<const std::byte> bytes);

struct UcpPlace {
  std::uint64_t link = 0;
  // Of the receiver's process: for senders of its host its name, if they find it; for others its
  // address ("1.2.3.4:80"), if it has one.
  std::string listener;
  std::string worker;  // the address of its worker: UCX alone can read it
};

struct UcpHello {
  trust::Ticket ticket{};
  UcpPlace sender;
};

// A worker's address may be as long as an endpoint has room for: eight places of 255 bytes.
inline constexpr std::size_t max_ucp_listener = 107;
inline constexpr std::size_t max_ucp_address = 8 * 255 - 18 - max_ucp_listener;

// UCX takes the address of a worker as it is. So a place has a checksum: damage is found before.
std::vector<std::uint8_t> encode(const UcpPlace& place);
std::optional<UcpPlace> decode_ucp_place(std::span<const std::uint8_t> bytes);
std::vector<std::uint8_t> encode(const UcpHello& hello);
std::optional<UcpHello> decode_ucp_hello(std::span<const std::uint8_t> bytes);

}  // namespace gyre::transport
