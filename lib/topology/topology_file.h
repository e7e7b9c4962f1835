// Topology files, whichever format they have: hwloc's XML or NCCL's.
#pragma once

#include "lib/topology/topology.h"

#include <string_view>

namespace gyre::topology {

// An error names the line and the reason.
Result<Topology> read_topology(std::string_view text);

}  // namespace gyre::topology
