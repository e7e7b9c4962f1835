// Outline: the part of a machine that searches for channels look at: its GPUs, its ports to other
// hosts, and all that lies between. It is small, since hosts tell it to each other. Equal machines
// have equal outlines, as those have no names of hosts, addresses or serial numbers.
#pragma once

#include "lib/topology/topology.h"

namespace gyre::topology {

// Bandwidths are whole megabytes per second. Searches find on it what they find on the machine, if
// ranks are on GPUs.
Topology outline(const Topology& machine);

// Whether it matters in which order data goes round the GPUs: some links are wider than others, or
// there are several ports.
bool has_several_ways(const Topology& machine);

}  // namespace gyre::topology
