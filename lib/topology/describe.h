// A topology as text, for people: a line for each node, in the order of the tree; and the
// difference of two.
#pragma once

#include "lib/topology/topology.h"

#include <string>

namespace gyre::topology {

std::string describe(const Topology& topology);
// "gpu0", "core3", "numa1", a port's name, else the bus id; empty if it has nothing of these.
std::string short_name(const TopologyNode& node);
// The lines of `describe` that one of them has alone: "- " of the first, "+ " of the second, below
// the lines of the parts that they lie in. Empty if the machines are equal.
std::string difference(const Topology& first, const Topology& second);

}  // namespace gyre::topology
