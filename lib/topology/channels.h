// Channels: the rings and trees that a cluster's ranks should use. A search finds them from the
// cluster alone, in whole numbers and a counted number of steps, so that all ranks find the same.
//
//   ring   goes through each host once, from the rail that it comes in by to the rail that it
//          leaves by, and on to the same rail of the next host. If the number of hosts is odd,
//          one border may join two rails.
//   tree   a double binary tree between hosts, and a chain through the members of each host. Trees
//          come in pairs, so that a host is a leaf in one of them.
#pragma once

#include "lib/topology/bandwidth_bound.h"
#include "lib/topology/cluster.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::topology {

// The most that a communicator on GPUs has.
inline constexpr int max_gpu_channels = 16;

struct SearchLimits {
  std::int64_t max_steps = 25'000'000;  // arcs looked at; 0.1 to 0.5 s
  int max_channels = 64;
  // Of all different hosts together, as peers describe theirs: arcs that max-flow looks at for the
  // bound, and edges of routes that are kept. A described rack of 72 GPUs needs a hundredth.
  std::int64_t max_flow_steps = 200'000'000;
  std::size_t max_route_edges = 32'000'000;
};

// How a channel gets from one host to the next (a tree: to the parent's).
struct HostCrossing {
  int from_host = 0, to_host = 0;
  int from_port = 0, to_port = 0;  // nodes of the hosts' topologies
  friend bool operator==(const HostCrossing&, const HostCrossing&) = default;
};

struct FoundChannel {
  std::vector<int> order;    // ranks: round a ring, or from a tree's root along all chains
  std::vector<int> parents;  // of a tree, by rank; -1: the root
  std::vector<HostCrossing> crossings;
  friend bool operator==(const FoundChannel&, const FoundChannel&) = default;
};

// What a channel of rate b costs: a ring loads each of its edges with b. A tree loads those of its
// chains, and of the hops between hosts, with b in both directions.
struct FoundChannels {
  ChannelPattern pattern = ChannelPattern::ring;
  std::vector<FoundChannel> channels;
  double channel_gigabytes_per_s = 0;  // of each
  double gigabytes_per_s = 0;          // of all together
  double bound_gigabytes_per_s = 0;    // no orders carry more
  std::string bound_reason;
  std::string limit;  // the edge that sets the rate, and how many channels pass it
  std::int64_t steps = 0;
  friend bool operator==(const FoundChannels&, const FoundChannels&) = default;
};

Result<FoundChannels> find_rings(const Cluster& cluster, const SearchLimits& limits = {});
Result<FoundChannels> find_trees(const Cluster& cluster, const SearchLimits& limits = {});

std::string_view pattern_name(ChannelPattern pattern);  // "ring"
// In a sentence: how many, how wide, and why not wider.
std::string reason_text(const FoundChannels& found);

}  // namespace gyre::topology
