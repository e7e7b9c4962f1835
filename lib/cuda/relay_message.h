// RelayMessage: a message between two relays (device_relay.h) about their kernels' links. It has a
// header of 32 bytes; after that of a tail come the bytes of one slot. Where a wire writes these
// bytes into the ring itself (DeliveryMode::push), the 64 bits of the slot's note say the rest, and
// there is no header. A message is a peer's word, so it is checked: it must lie within the link,
// and have the next number.
#pragma once

#include "lib/base/status.h"
#include "lib/cuda/device_link.h"

#include <cstdint>
#include <span>

namespace gyre::exec {

enum class RelayWord : std::uint32_t {
  tail = 1,     // a kernel has sent one more message; it comes along
  head = 2,     // a kernel has released messages, up to this number
  goodbye = 3,  // the last message: the sender takes nothing more either
};

struct RelayMessage {
  std::uint32_t channel = 0;
  RelayWord word = RelayWord::tail;
  std::uint64_t number = 0;  // what the word stands at from now on
  // Of a tail: the slot's note. It is staged, as relays lend nothing.
  std::uint64_t flag = 0;
  std::uint32_t bytes = 0;
  std::uint32_t reserved = 0;
  friend bool operator==(const RelayMessage&, const RelayMessage&) = default;
};
inline constexpr std::size_t relay_header_bytes = 32;
static_assert(sizeof(RelayMessage) == relay_header_bytes);

// What of one channel has passed between this relay and the peer's.
struct RelayCounts {
  std::uint64_t sent = 0;      // messages of this rank's kernels
  std::uint64_t freed = 0;     // of those, released by the peer's
  std::uint64_t landed = 0;    // messages of the peer's kernels
  std::uint64_t returned = 0;  // of those, released by this rank's, as the peer knows
  friend bool operator==(const RelayCounts&, const RelayCounts&) = default;
};

// What the note of a pushed tail says: the channel, and the low bits of the number and of the
// call's signature.
std::uint64_t pushed_flag(const RelayMessage& tail);

// Reads one pushed tail, as the next function reads other messages.
Result<RelayMessage> take_pushed_message(const transport::SlotHeader& note,
                                         const DeviceShape& shape, std::span<RelayCounts> counts);
// Reads one message of the peer's and counts it; `counts` by channel. On an error nothing changed.
Result<RelayMessage> take_relay_message(std::span<const std::byte> message,
                                        const DeviceShape& shape, std::span<RelayCounts> counts);

}  // namespace gyre::exec
