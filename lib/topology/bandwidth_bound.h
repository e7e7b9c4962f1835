// The most that rings or trees over a host's members can carry, whatever their orders are. Two
// facts hold for all of them, and the smaller figure is the bound:
//
//   border   a ring in one host crosses each border between members from either side. One that goes
//            on to other hosts crosses it once at least, and passes the ports both ways. A tree
//            crosses it both ways. Max-flow finds the narrowest border.
//   volume   a ring goes from every member to another, a tree there and back. The edges on which
//            members send to each other have only so much in sum.
#pragma once

#include "lib/topology/routes.h"

#include <cstdint>
#include <string>

namespace gyre::topology {

enum class ChannelPattern : std::uint8_t { ring, tree };

struct BandwidthBound {
  std::int64_t megabytes_per_s = 0;
  std::string reason;
};

// `leaves_host`: whether the channels go on to other hosts by the rails. `steps`: arcs that
// max-flow may look at; gets less. If none are left, borders that it has not judged are no limit.
BandwidthBound host_bound(const Topology& topology, const HostRoutes& routes,
                          ChannelPattern pattern, bool leaves_host, std::int64_t& steps);

// All that the members can send to the network together, by max-flow.
std::int64_t network_megabytes_per_s(const HostRoutes& routes, std::int64_t& steps);

}  // namespace gyre::topology
