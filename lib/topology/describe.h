// A topology as text, for people: a line for each node, in the order of the tree.
#pragma once

#include "lib/topology/topology.h"

#include <string>

namespace gyre::topology {

std::string describe(const Topology& topology);

}  // namespace gyre::topology
