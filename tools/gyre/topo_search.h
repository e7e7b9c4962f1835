// The searches of gyre topo: rings and trees over one machine, or several alike, and their
// printing.
#pragma once

#include "lib/topology/channels.h"

#include <string>
#include <vector>

namespace gyre::tools {

struct TopoSearch {
  topology::Cluster cluster;
  std::vector<topology::FoundChannels> found;
};

struct TopoQuestion {
  int hosts = 1;  // alike
  bool rings = false, trees = false;
  int max_channels = topology::SearchLimits().max_channels;
};

// With a rank on each GPU, or if there are none on each core, of each host.
Result<TopoSearch> search_machine(topology::Topology machine, const TopoQuestion& asked);

// Where the ranks are, and of each search the reason and a line for each channel.
std::string search_text(const TopoSearch& search);
// The machine, and the searches if there are any.
std::string search_json(const TopoSearch& search);

extern const char* const topo_json_schema;

}  // namespace gyre::tools
