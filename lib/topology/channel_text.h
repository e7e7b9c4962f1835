// Found channels as text for people, a line for each. `gyre topo` shows them, and so does the log
// of a communicator that uses them.
#pragma once

#include "lib/topology/channels.h"

#include <string>
#include <vector>

namespace gyre::topology {

// "ring 0: 0 1 2 3 (mlx5_1 to mlx5_1) 4 5 6 7 (mlx5_0 to mlx5_0)": ranks, and by which ports they
// go from host to host.
std::vector<std::string> channel_lines(const Cluster& cluster, const FoundChannels& found);

}  // namespace gyre::topology
