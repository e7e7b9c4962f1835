// UcpWindow: how many messages may be on their way. As many as there are slots; and more, if they
// are short: the receiver keeps those beside its slots until one is free. So few credits are
// needed where messages are short.
#pragma once

#include "lib/transport/slots.h"

#include <algorithm>
#include <cstdint>

namespace gyre::transport {

struct UcpWindow {
  // 8 KiB, and what stands before the payload of a send.
  static constexpr std::uint64_t max_short_bytes = (8 << 10) + 64;
  static constexpr std::uint32_t min_messages = 64;

  std::uint32_t slots = 0;
  std::uint32_t messages = 0;  // a power of two

  static constexpr UcpWindow of(const FifoShape& shape) {
    return {shape.slot_count, std::max(shape.slot_count, min_messages)};
  }
  // Whether a message may leave that is so many after the first one that holds a slot.
  constexpr bool takes(std::uint64_t ahead, std::uint64_t bytes) const {
    return ahead < slots || (ahead < messages && bytes <= max_short_bytes);
  }
};

}  // namespace gyre::transport
