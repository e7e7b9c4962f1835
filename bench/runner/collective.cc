// Collective: the block layouts that several programs share. See collective.h.
#include "bench/runner/collective.h"

namespace gyre::bench {

std::vector<ExpectedBlock> gathered(int ranks, std::uint64_t count) {
  std::vector<ExpectedBlock> blocks;
  for (int rank = 0; rank < ranks; ++rank)
    blocks.push_back({.output_first = static_cast<std::uint64_t>(rank) * count,
                      .count = count,
                      .source_rank = rank});
  return blocks;
}

}  // namespace gyre::bench
