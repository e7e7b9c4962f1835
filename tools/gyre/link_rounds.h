// The rounds of gyre link. Pairs of one round share no rank, so they are measured at the same time.
// Pairs across hosts share no host either: otherwise they would halve each other's rates.
#pragma once

#include "tools/gyre/link_values.h"

#include <vector>

namespace gyre::tools {

using LinkRounds = std::vector<std::vector<LinkPair>>;

LinkRounds find_rounds(std::vector<LinkPair> pairs, const std::vector<int>& host_of_rank);

}  // namespace gyre::tools
