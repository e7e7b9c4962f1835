// What ranks of different processes tell each other of a region: memory of a GPU that one lends and
// the others open.
//
//   offered     by the lender, with a ticket for its listener, which hands over the descriptor,
//               once
//   exported    the same of memory that gyreMemAlloc did not give, for CUDA IPC
//   opened      by who has it mapped from now on
//   refused     by who cannot have it
//   withdrawn   by the lender: it will lend nothing of it any more
//   closed      by who has exported memory no longer mapped, after it was withdrawn
//   kept        by who keeps it mapped all the same, since a graph may bring kernels at any time
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
