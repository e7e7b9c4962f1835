// The messages between ranks of different processes about a region: GPU memory that one lends and
// the others open.
//
//   offered     by the lender, with a ticket for its listener, which hands over the descriptor,
//               once
//   exported    the same for memory that gyreMemAlloc did not give, for CUDA IPC
//   opened      by a peer: it has the region mapped from now on
//   refused     by a peer: it cannot map the region
//   withdrawn   by the lender: it will lend nothing of it any more
//   closed      by a peer: after the withdrawal it has unmapped exported memory
//   kept        by a peer: it keeps the region mapped, since a graph may use it at any time
#pragma once

#include "lib/trust/tickets.h"
#include "transports/p2p/memory.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gyre::comm {

struct RegionMessage {
  enum class Kind : std::uint32_t {
    offered,
    opened,
    refused,
    withdrawn,
    exported,
    closed,
    kept,
  };
  Kind kind = Kind::offered;
  std::uint64_t number = 0;  // see cuda::DevicePlace
  // Of an offer.
  std::uint64_t bytes = 0;
  trust::Ticket ticket{};
  // Of an export: a whole allocation.
  p2p::IpcMemory memory = {};
};

std::vector<std::uint8_t> encode(const RegionMessage& message);
// Nothing if it is malformed, or speaks of what no region is.
std::optional<RegionMessage> decode_region_message(std::span<const std::uint8_t> bytes);

}  // namespace gyre::comm
