// PairLog: for each peer of a rank, which transports there are, which one is taken, and why; a line
// for peers of whom the same holds.
#pragma once

#include "lib/comm/rank_layout.h"
#include "lib/links/links.h"
#include "lib/topology/topology.h"

#include <string>
#include <vector>

namespace gyre::comm {

class PairLog {
 public:
  // `machine`: this host; null: not known.
  PairLog(const Links& links, const RankLayout& layout, const topology::Topology* machine)
      : links_(links), layout_(layout), machine_(machine) {}

  // "rank 0 to ranks 1-3: shm: same host and user, CACHE, no figure; then tcp: over loopback".
  std::vector<std::string> lines(int rank, int size) const;

 private:
  std::string text(int rank, int peer) const;

  const Links& links_;
  const RankLayout& layout_;
  const topology::Topology* machine_;
};

}  // namespace gyre::comm
