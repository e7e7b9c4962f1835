// CollectiveCall: a collective with equal blocks, as its C function got it; unchecked. BufferShape:
// what follows for its buffers.
#pragma once

#include "lib/call/request.h"

#include <cstddef>
#include <cstdint>

namespace gyre::comm {

struct CollectiveCall {
  Function function = Function::all_reduce;
  plan::Collective collective = plan::Collective::all_reduce;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;    // of those that sum
  int root = 0;  // of those that have one
};

// The end of user space on 64-bit machines with 48-bit addresses (x86-64, arm64).
inline constexpr std::uint64_t address_end = 1ULL << 47;

// How long a rank's buffers are, and where they may meet: `receive` begins `send_ahead` bytes
// before `send`, or `receive_ahead` after it.
struct BufferShape {
  std::uint64_t send_bytes = 0, receive_bytes = 0;
  std::uint64_t send_ahead = 0, receive_ahead = 0;

  static BufferShape of(plan::Collective collective, int size, int rank, bool is_root,
                        std::uint64_t block_bytes);
  bool is_in_place(const void* send, const void* receive) const {
    return reinterpret_cast<std::uintptr_t>(send) + receive_ahead ==
           reinterpret_cast<std::uintptr_t>(receive) + send_ahead;
  }
  // Whether both lie in the address space, and apart or in place.
  bool fits(const void* send, const void* receive) const {
    const auto from = reinterpret_cast<std::uintptr_t>(send);
    const auto to = reinterpret_cast<std::uintptr_t>(receive);
    // Of null, one less is beyond any end.
    if (send_bytes > 0 && from - 1 >= address_end - send_bytes) return false;
    if (receive_bytes == 0) return true;
    if (to - 1 >= address_end - receive_bytes) return false;
    return send_bytes == 0 || from + send_bytes <= to || to + receive_bytes <= from ||
           is_in_place(send, receive);
  }
};

}  // namespace gyre::comm
