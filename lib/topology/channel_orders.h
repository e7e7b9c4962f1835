// Orders of one host's members for several channels at once, so that the busiest edge carries as
// little as possible. All channels carry the same; an edge carries what the channels on it do
// together. Each channel in turn takes the cheapest tour, where an edge costs more the fuller it
// is.
#pragma once

#include "lib/topology/routes.h"

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace gyre::topology {

// What a channel does in one host.
struct HostChannel {
  // By which rails it comes and goes; -1: it does not leave the host.
  int entry = -1, exit = -1;
  // A ring goes round once. A tree's data goes along a chain of the members and back, and by
  // `entry` as often as the host has neighbours in the tree.
  bool is_tree = false;
  int neighbours = 1;
  friend auto operator<=>(const HostChannel&, const HostChannel&) = default;
};

struct HostOrders {
  std::vector<std::vector<int>> orders;  // members, by channel
  std::vector<int> loads;                // channels, by edge; one that passes twice counts twice
};

// Calls `take(edge, times)` for the edges between two stops of a channel; a stop is a member, or -1
// for outside of the host.
template <typename Take>
void for_each_edge(const HostRoutes& routes, const HostChannel& channel, int from, int to,
                   const Take& take) {
  const auto take_all = [&](const std::vector<int>& edges, int times) {
    for (const int edge : edges) take(edge, times);
  };
  if (from >= 0 && to >= 0) {
    take_all(routes.between(from, to), 1);
    if (channel.is_tree) take_all(routes.between(to, from), 1);
  } else if (from < 0 && to >= 0 && channel.entry >= 0) {
    take_all(routes.entering(to, channel.entry), channel.is_tree ? channel.neighbours : 1);
    if (channel.is_tree) take_all(routes.leaving(to, channel.entry), channel.neighbours);
  } else if (from >= 0 && to < 0 && channel.exit >= 0 && !channel.is_tree) {
    take_all(routes.leaving(from, channel.exit), 1);
  }
}

// `target_megabytes_per_s`: what all channels together are meant to carry. `steps` gets less; when
// none are left, the orders are those found so far, or the members as they are numbered.
HostOrders find_orders(const HostRoutes& routes, std::span<const HostChannel> channels,
                       std::int64_t target_megabytes_per_s, std::int64_t& steps);

// Given orders, one for each channel, with what they load.
HostOrders with_loads(const HostRoutes& routes, std::span<const HostChannel> channels,
                      std::vector<std::vector<int>> orders);

// How much each channel carries if edges are loaded so.
std::int64_t channel_megabytes_per_s(const HostRoutes& routes, const std::vector<int>& loads);
// The edge that sets it; -1 if none is loaded.
int narrowest_edge(const HostRoutes& routes, const std::vector<int>& loads);

}  // namespace gyre::topology
