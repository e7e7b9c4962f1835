// For each peer of a rank: which transports there are, which one is taken, and why: as lines for
// the log, and for tools the taken one.
#pragma once

#include "lib/comm/rank_layout.h"
#include "lib/links/links.h"
#include "lib/topology/topology.h"
#include "lib/topology/transport_path.h"

#include <string>
#include <vector>

namespace gyre::comm {

// "rank 0 to ranks 1-3: shm: same host and user, CACHE, no figure; then tcp: over loopback", a line
// for peers of whom the same holds. `machine`: this host; null: not known.
std::vector<std::string> pair_lines(const Links& links, const RankLayout& layout,
                                    const topology::Topology* machine, int rank, int size);

// By which transport links to a rank go, and through what, as far as this host's machine tells.
struct PeerPath {
  int host = 0;           // its number in the layout
  std::string transport;  // empty: none reaches it
  topology::TransportPath path;
};
// By rank.
std::vector<PeerPath> peer_paths(const Links& links, const RankLayout& layout,
                                 const topology::Topology* machine, int rank, int size);

}  // namespace gyre::comm
