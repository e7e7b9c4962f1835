// Which links a job's plans use, and what they go through: rank by rank as the communicator itself
// says it, gathered on all ranks.
#pragma once

#include "lib/base/status.h"
#include "tools/gyre/link_values.h"
#include <gyre/gyre.h>

#include <string>
#include <vector>

namespace gyre::tools {

// This rank's link to a peer, by the machine's own figures.
struct OwnLink {
  std::string kind;
  double known_bytes_per_s = 0;  // 0: nobody knows
};

struct LinkPlan {
  LinkJobFacts facts;
  int rank = 0;
  std::vector<LinkPair> pairs;  // to be measured
  std::vector<OwnLink> own;     // by peer
};

// A collective call on `comm`, which is on host memory.
Result<LinkPlan> learn_links(gyreComm_t comm, bool all_pairs);

}  // namespace gyre::tools
