#include "lib/comm/ring_searches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace gyre::comm {
namespace {

// As many as the communicators that a framework makes for one model, twice.
constexpr std::size_t max_kept_searches = 16;

Result<std::shared_ptr<const topology::FoundChannels>> search(const topology::Cluster& cluster,
                                                              int max_channels) {
  GYRE_ASSIGN(topology::FoundChannels rings,
              topology::find_rings(cluster, {.max_channels = max_channels}));
  return std::make_shared<const topology::FoundChannels>(std::move(rings));
}

// Where rings cross to or from a rank: the two ranks, and each two ports once.
using RankPair = std::pair<int, int>;
using PortPairs = std::vector<std::pair<std::string, std::string>>;

std::map<RankPair, PortPairs> find_crossings(const topology::Cluster& cluster,
                                             const topology::FoundChannels& found, int rank) {
  std::vector<int> hosts(static_cast<std::size_t>(cluster.rank_count()));
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host)
    for (const topology::ClusterMember& member : cluster.hosts[host].members)
      hosts[static_cast<std::size_t>(member.rank)] = static_cast<int>(host);
  const auto host_of = [&](int one) { return hosts[static_cast<std::size_t>(one)]; };
  const auto name = [&](int host, int port) {
    const auto& at = cluster.hosts[static_cast<std::size_t>(host)];
    return port_name(cluster.topology(at).node(port));
  };
  std::map<RankPair, PortPairs> crossings;
  for (const topology::FoundChannel& channel : found.channels)
    for (std::size_t i = 0; i < channel.order.size(); ++i) {
      const int from = channel.order[i], to = channel.order[(i + 1) % channel.order.size()];
      if ((from != rank && to != rank) || host_of(from) == host_of(to)) continue;
      const auto crossing =
          std::ranges::find(channel.crossings, host_of(from), &topology::HostCrossing::from_host);
      if (crossing == channel.crossings.end()) continue;
      const std::pair ports(name(crossing->from_host, crossing->from_port),
                            name(crossing->to_host, crossing->to_port));
      PortPairs& known = crossings[{from, to}];
      if (std::ranges::find(known, ports) == known.end()) known.push_back(ports);
    }
  return crossings;
}

}  // namespace

Result<std::shared_ptr<const topology::FoundChannels>> RingSearches::find(
    const topology::Cluster& cluster, int max_channels) {
  const std::lock_guard lock(mutex_);
  for (const KeptSearch& one : known_)
    if (one.max_channels == max_channels && one.cluster == cluster) return one.found;
  if (known_.size() == max_kept_searches) known_.pop_front();
  known_.push_back({cluster, max_channels, search(cluster, max_channels)});
  return known_.back().found;
}

std::vector<std::vector<std::int32_t>> ring_orders(const topology::FoundChannels& found) {
  std::vector<std::vector<std::int32_t>> orders;
  for (const topology::FoundChannel& channel : found.channels) {
    std::vector<std::int32_t> order(channel.order.begin(), channel.order.end());
    std::rotate(order.begin(), std::ranges::find(order, 0), order.end());
    orders.push_back(std::move(order));
  }
  const bool is_one = std::ranges::all_of(
      orders, [&](const std::vector<std::int32_t>& order) { return order == orders.front(); });
  if (is_one) orders.resize(1);
  return orders;
}

PortsByPeer ring_ports(const topology::Cluster& cluster, const topology::FoundChannels& found,
                       int rank) {
  PortsByPeer ports;
  for (const auto& [ranks, pairs] : find_crossings(cluster, found, rank))
    for (const auto& [from, to] : pairs) {
      if (ranks.first == rank)
        ports[ranks.second].out.push_back(from);
      else
        ports[ranks.first].in.push_back(to);
    }
  for (auto& [peer, planned] : ports) {
    if (planned.in.empty()) planned.in = planned.out;
    if (planned.out.empty()) planned.out = planned.in;
  }
  return ports;
}

}  // namespace gyre::comm
