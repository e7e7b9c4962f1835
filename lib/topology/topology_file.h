// Topology files, whichever format they have: hwloc's XML or NCCL's.
#pragma once

#include "lib/topology/topology.h"

#include <string>
#include <string_view>

namespace gyre::topology {

// An error names the line and the reason.
Result<Topology> read_topology(std::string_view text);
// The same of a regular file of at most max_xml_bytes; an error names it, too.
Result<Topology> read_topology_file(const std::string& path);

}  // namespace gyre::topology
