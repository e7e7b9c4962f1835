// Which moves NVLink's switch can do, where the buffers of all ranks are bound to one multicast
// group: it sums what one load reads from every rank, and writes one store to every rank. What the
// kernels leave to it (kernels/cuda/multicast.h) is decided alike; it follows from the lane and
// from how messages are delivered, so plans have no word for it.
#pragma once

#include "lib/plan/timeline.h"

#include <cstdint>
#include <vector>

namespace gyre::plan {

// As far as this end can tell: what comes must be pulled from the inputs of all others besides.
bool takes_from_all(const Lane& lane, const Move& move);
// Writes what is final to its place in the outputs of all.
bool sends_to_all(const Lane& lane, const Move& move);

// What crosses the wires between one rank's GPU and the switch, if messages are delivered directly.
struct WireLoad {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t switch_moves = 0;  // of this rank that the switch did
};

// By rank. With `multicast` a sum is received once, and a store to all is sent once; the rank's own
// part goes over the wires as well, since a group has its buffers too.
std::vector<WireLoad> wire_loads(const Timeline& timeline, std::int32_t rank_count, bool multicast);

}  // namespace gyre::plan
