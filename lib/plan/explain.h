// Explains an algorithm in figures, all of them counted from its plans.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/timeline.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gyre::plan {

// What crosses one link, in one direction.
struct LinkLoad {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t channel = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

// By from, to and channel; links to oneself included.
std::vector<LinkLoad> link_loads(const Timeline& timeline);

// What crosses the wires between one rank's GPU and the switch, if messages are delivered directly.
struct WireLoad {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t switch_moves = 0;  // of this rank that the switch did
};

// By rank. With `multicast` a sum is received once, and a store to all is sent once; the rank's own
// part goes over the wires as well, since a group has its buffers too.
std::vector<WireLoad> wire_loads(const Timeline& timeline, std::int32_t rank_count, bool multicast);

// What the algorithm does, its steps, roundings and depth, what crosses each link if the larger
// buffer of a rank has `total_bytes`, and how messages grow with the number of ranks. With
// `multicast`, also what crosses each rank's wires where NVLink's switch sums and spreads.
Result<std::string> explain(const Algorithm& algorithm, const PlanRequest& request,
                            std::uint64_t total_bytes, bool multicast = false);

}  // namespace gyre::plan
