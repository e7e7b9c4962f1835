// The shipped table: what is preferred for which call, by collective, reach, size and ranks.
#pragma once

#include "lib/plan/plan.h"
#include "lib/plan/protocol.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace gyre::tune {

// The first line that fits a call and is allowed is taken.
struct Row {
  bool mapped;               // memory reaches between any two ranks
  std::uint64_t bytes_most;  // of all blocks together
  int ranks_most;
  std::string_view algorithm;
  plan::Protocol protocol;
};
std::span<const Row> rows_for(plan::Collective collective);
// Of GPUs whose memory reaches.
std::span<const Row> device_rows_for(plan::Collective collective);

}  // namespace gyre::tune
