// What any found rings and trees must be, worked out from the topology alone and not with the code
// of the search: whole, and within what every edge carries.
#pragma once

#include "lib/topology/channels.h"

#include <string>

namespace gyre::tests {

// The first thing that is wrong; empty if nothing is.
std::string fault_of(const topology::Cluster& cluster, const topology::FoundChannels& found);

// The best that any orders on one host reach, by trying all of them: a linear program over every
// ring, or every chain, with the bandwidth of each as the unknown. For at most 8 ranks.
double best_gigabytes_per_s(const topology::Cluster& cluster, topology::ChannelPattern pattern);

}  // namespace gyre::tests
