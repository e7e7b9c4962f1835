// A machine as a picture, with the rings and trees that a search chose drawn over it.
#pragma once

#include "lib/topology/channels.h"

#include <span>
#include <string>

namespace gyre::topology {

inline constexpr int max_drawn_nodes = 4096;

// An SVG document of the cluster's first host: boxes are its parts, inside of each other. A ring
// goes by arcs from rank to rank, with the sense of the clock, a tree's chain by dashed ones.
// Channels of one order are one line. Virtual and loopback ports are left out, and many cores are
// one line of text.
Result<std::string> draw(const Cluster& cluster, std::span<const FoundChannels> found);

}  // namespace gyre::topology
