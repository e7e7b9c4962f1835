// Transfer: one send or receive of point-to-point traffic, as a value; how its C function got it;
// and the head before its payload on a link. Messages between two ranks arrive in the order they
// were sent. A receive takes the first message that fits it.
#pragma once

#include "lib/base/element.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gyre::exec {
struct StreamState;
}

namespace gyre::comm {

inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;

struct Transfer {
  bool sends = false;
  bool is_shipped = false;  // a send: its message lies in the link, and has to leave
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint64_t bytes = 0;
  ElementType type = ElementType::uint8;
  int peer = 0;  // or any_source
  int tag = 0;   // or any_tag
  // The caller's places for who it was and which tag; null if it does not ask.
  int* source = nullptr;
  int* received_tag = nullptr;
  const void* stream = nullptr;              // on a CUDA communicator
  const exec::StreamState* asked = nullptr;  // see Request

  bool takes(int from, int message_tag) const {
    return (peer == any_source || peer == from) && (tag == any_tag || tag == message_tag);
  }
};

// What sends and receives that are alike have in common, but for their buffers.
struct TransferShape {
  std::uint64_t count = 0;
  int type = 0;
  int peer = 0;
  int tag = 0;
  bool sends = false;
  std::array<std::uint8_t, 3> nothing{};  // so that all of it can be compared as it lies in memory

  friend bool operator==(const TransferShape& a, const TransferShape& b) {
    static_assert(std::has_unique_object_representations_v<TransferShape>);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};

// A send or receive as its C function got it; unchecked.
struct TransferCall : TransferShape {
  const void* send = nullptr;
  void* receive = nullptr;
  int* source = nullptr;
  int* received_tag = nullptr;

  // Once its type is known to be one.
  Transfer transfer() const {
    const auto element = static_cast<ElementType>(type);
    return {.sends = sends,
            .input = static_cast<const std::byte*>(send),
            .output = static_cast<std::byte*>(receive),
            .bytes = count * element_bytes(element),
            .type = element,
            .peer = peer,
            .tag = tag,
            .source = source,
            .received_tag = received_tag};
  }
};

// One that was checked, so that the next one like it need not be.
struct KnownTransfer {
  TransferShape shape;
  Transfer transfer;  // its buffers are another one's
  std::uint64_t last_address = 0;

  bool takes(const TransferShape& call, const void* buffer) const {
    return shape == call && reinterpret_cast<std::uintptr_t>(buffer) - 1 <= last_address;
  }
};

// At the start of a message's first slot; the payload follows at once, and goes on in later slots.
struct TransferHead {
  std::uint64_t bytes = 0;
  std::int32_t tag = 0;
  std::uint8_t type = 0;
  std::uint8_t zero[3] = {};
};
static_assert(sizeof(TransferHead) == 16);

// In the signature of every slot: point-to-point traffic has links of its own.
inline constexpr std::uint64_t transfer_signature = 0x703270;

}  // namespace gyre::comm
