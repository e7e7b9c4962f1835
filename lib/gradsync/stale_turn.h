// Bounded staleness: which gradients the next round takes. All ranks decide alike, from the same
// table of the ranks' states, which they exchange over and over.
//
//   round   one reduction, of the gradients of those that are ready; the others give zeros
//   base    how many rounds a rank had applied when it began to compute its next gradient
//   bound   a gradient is part of a round at most so many rounds after its base
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::gradsync {

enum class StaleState : std::uint32_t { computing, ready, ended, leaving };

// What a rank says of itself.
struct StaleEntry {
  std::uint64_t base = 0;
  std::int64_t compute_ns = 0;  // for the gradient that is ready
  StaleState state = StaleState::computing;
  std::uint32_t is_impatient = 0;  // it is ready for longer than it waits for company
  std::int32_t failure = 0;        // gyreResult_t
  std::uint32_t reserved = 0;
};

struct StaleTurn {
  enum class Kind : std::uint8_t { wait, round, ended, broken };
  Kind kind = Kind::wait;
  std::vector<int>
      held_up_by;  // ranks without which the next round may not be: while somebody waits
};

// Before round number `round`, from 0.
StaleTurn decide(std::span<const StaleEntry> table, std::uint64_t round, std::uint64_t bound);

}  // namespace gyre::gradsync
