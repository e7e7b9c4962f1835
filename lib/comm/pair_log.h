// For each peer of a rank: which transports there are, which one is taken, and why.
#pragma once

#include "lib/comm/rank_layout.h"
#include "lib/links/links.h"
#include "lib/topology/topology.h"

#include <string>
#include <vector>

namespace gyre::comm {

// "rank 0 to ranks 1-3: shm: same host and user, CACHE, no figure; then tcp: over loopback", a line
// for peers of whom the same holds. `machine`: this host; null: not known.
std::vector<std::string> pair_lines(const Links& links, const RankLayout& layout,
                                    const topology::Topology* machine, int rank, int size);

}  // namespace gyre::comm
