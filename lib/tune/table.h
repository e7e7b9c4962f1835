// The shipped table: the preferred algorithm and protocol of each call, by collective, reach, size
// and ranks.
#pragma once

#include "lib/plan/plan.h"
#include "lib/plan/protocol.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace gyre::tune {

inline constexpr std::uint64_t any_bytes = ~0ULL;
inline constexpr int any_ranks = 1 << 30;

// The first line that fits a call and is allowed is taken.
struct Row {
  bool mapped;              // memory reaches between any two ranks
  std::uint64_t max_bytes;  // of all blocks together
  int max_ranks;
  std::string_view algorithm;
  plan::Protocol protocol;
  bool needs_levels = false;  // several hosts, several ranks on each, as many on all
};

struct Table {
  std::span<const Row> all_reduce, scattered, broadcast, reduce, all_to_all, gather, scatter;

  std::span<const Row> rows(plan::Collective collective) const;
};
extern const Table host_table;
// Of GPUs whose memory reaches; else the host's holds for them too.
extern const Table device_table;

}  // namespace gyre::tune
