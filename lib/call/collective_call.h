// CollectiveCall: a collective with equal blocks, as its C function got it; unchecked. BufferShape:
// what follows for its buffers.
#pragma once

#include "lib/call/buffer_address.h"
#include "lib/call/request.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gyre::comm {

// What calls without streams that are alike have in common, but for their buffers.
struct CallShape {
  std::uint64_t count = 0;
  int type = 0;
  int op = 0;    // of those that sum
  int root = 0;  // of those that have one
  Function function = Function::all_reduce;
  std::array<std::uint8_t, 3> nothing{};  // so that all of it can be compared as it lies in memory

  friend bool operator==(const CallShape& a, const CallShape& b) {
    static_assert(std::has_unique_object_representations_v<CallShape>);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};

struct CollectiveCall : CallShape {
  plan::Collective collective = plan::Collective::all_reduce;
  const void* send = nullptr;
  void* receive = nullptr;
};

// How long a rank's buffers are, and where they may meet: `receive` begins `send_ahead` bytes
// before `send`, or `receive_ahead` after it.
struct BufferShape {
  std::uint64_t send_bytes = 0, receive_bytes = 0;
  std::uint64_t send_ahead = 0, receive_ahead = 0;
  // See last_address.
  std::uint64_t last_send = UINT64_MAX, last_receive = UINT64_MAX;

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
    if (from - 1 > last_send || to - 1 > last_receive) return false;
    return from + send_bytes <= to || to + receive_bytes <= from || is_in_place(send, receive) ||
           send_bytes == 0 || receive_bytes == 0;
  }
};

}  // namespace gyre::comm
