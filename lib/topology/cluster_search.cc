#include "lib/topology/cluster_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace gyre::topology {
namespace {

// What one channel can move on a GPU, in megabytes per second, whatever its links can: the widest
// that NCCL gives a channel of one generation (NCCL 2.30, src/graph/search.cc, speeds).
std::int64_t max_channel_of(const TopologyNode& node) {
  if (node.kind != NodeKind::gpu) return LLONG_MAX;
  const int capability = node.gpu ? node.gpu->capability : 0;
  return capability >= 100 ? 90'000 : capability >= 90 ? 60'000 : 40'000;
}

std::string edge_text(const Topology& topology, const RouteEdge& edge) {
  const auto end = [&](int node) {
    return node == network_node ? "the network" : node_text(topology.node(node));
  };
  return fmt::format("{} to {}", end(edge.from), end(edge.to));
}

std::string host_text(const ClusterSearch& search, int host) {
  const std::string& name = search.kind(host).topology->node(0).name;
  return name.empty() ? fmt::format("host {}", host) : fmt::format("host {} ({})", host, name);
}

}  // namespace

Result<ClusterSearch> ClusterSearch::begin(const Cluster& cluster, ChannelPattern pattern,
                                           const SearchLimits& limits) {
  GYRE_TRY(check(cluster));
  ClusterSearch search(cluster);
  search.max_steps_ = search.steps_ = limits.max_steps;
  search.max_channels_ = std::max(1, limits.max_channels);
  search.flow_steps_ = limits.max_flow_steps;
  GYRE_TRY(search.find_kinds(pattern, limits.max_route_edges));
  return search;
}

Status ClusterSearch::find_kinds(ChannelPattern pattern, std::size_t room) {
  std::map<std::pair<int, std::vector<int>>, int> known;  // machine and nodes
  for (const ClusterHost& host : cluster_->hosts) {
    std::vector<int> nodes;
    for (const ClusterMember& member : host.members) nodes.push_back(member.node);
    const auto [place, is_new] =
        known.emplace(std::pair(host.machine, nodes), static_cast<int>(kinds_.size()));
    kind_of_.push_back(place->second);
    if (!is_new) continue;
    const Topology& topology = cluster_->topology(host);
    GYRE_ASSIGN(HostRoutes routes, HostRoutes::find(topology, nodes, room));
    if (has_network() && routes.rail_count() == 0)
      return invalid_argument(
          fmt::format("{} has no port that is up and that all its ranks reach, and there are {} "
                      "hosts",
                      node_text(topology.node(0)), host_count()));
    BandwidthBound bound = host_bound(topology, routes, pattern, has_network(), flow_steps_);
    // Trees alone ask for it.
    const std::int64_t network =
        pattern == ChannelPattern::tree ? network_megabytes_per_s(routes, flow_steps_) : 0;
    kinds_.push_back({&topology, std::move(routes), std::move(bound), network});
  }
  bound_ = kinds_.front().bound;
  for (const HostKind& kind : kinds_) limit_bound(kind.bound.megabytes_per_s, kind.bound.reason);
  return {};
}

void ClusterSearch::limit_bound(std::int64_t megabytes_per_s, const std::string& reason) {
  if (megabytes_per_s < bound_.megabytes_per_s) bound_ = {megabytes_per_s, reason};
}

int ClusterSearch::rank(int host, int member) const {
  const auto given = static_cast<std::size_t>(kind(host).routes.given(member));
  return cluster_->hosts[static_cast<std::size_t>(host)].members[given].rank;
}

const HostOrders& ClusterSearch::orders(int host, const std::vector<HostChannel>& channels) {
  const int kind_index = kind_of_[static_cast<std::size_t>(host)];
  const auto known = memory_.find({kind_index, channels});
  if (known != memory_.end()) return known->second;
  const HostRoutes& routes = kind(host).routes;
  HostOrders found = find_orders(routes, channels, bound_.megabytes_per_s, steps_);
  if (const HostOrders* const like = orders_like(kind_index, channels); !has_steps() && like) {
    HostOrders other = with_loads(routes, channels, like->orders);
    if (channel_megabytes_per_s(routes, other.loads) > channel_megabytes_per_s(routes, found.loads))
      found = std::move(other);
  }
  return memory_.emplace(std::pair(kind_index, channels), std::move(found)).first->second;
}

const HostOrders* ClusterSearch::orders_like(int kind_index,
                                             const std::vector<HostChannel>& channels) const {
  const auto is_alike = [](const HostChannel& one, const HostChannel& other) {
    return one.entry == other.entry && one.exit == other.exit;
  };
  for (const auto& [key, orders] : memory_)
    if (key.first == kind_index && std::ranges::equal(key.second, channels, is_alike))
      return &orders;
  return nullptr;
}

std::vector<int> rails_for(const HostRoutes& routes, int channels) {
  std::vector<std::int64_t> widths;
  for (int rail = 0; rail < routes.rail_count(); ++rail)
    widths.push_back(routes.rail_megabytes_per_s(rail));
  std::vector<int> counts(widths.size());
  std::vector<int> rails;
  for (int i = 0; i < channels; ++i) {
    std::size_t best = 0;
    for (std::size_t rail = 1; rail < widths.size(); ++rail)
      if ((counts[rail] + 1) * widths[best] < (counts[best] + 1) * widths[rail]) best = rail;
    ++counts[best];
    rails.push_back(static_cast<int>(best));
  }
  std::ranges::sort(rails);
  return rails;
}

std::int64_t ClusterSearch::max_channel_megabytes_per_s() const {
  std::int64_t least = LLONG_MAX;
  for (const HostKind& one : kinds_)
    for (int member = 0; member < one.routes.member_count(); ++member)
      least = std::min(least, max_channel_of(one.topology->node(one.routes.node(member))));
  return least;
}

std::vector<int> ClusterSearch::channel_counts(int group, int passes) {
  // Where no edge is a limit, more channels carry no more.
  const bool is_limited = bound_.megabytes_per_s < whole_megabytes(local_gigabytes_per_s);
  const std::int64_t most = is_limited ? max_channel_megabytes_per_s() : LLONG_MAX;
  const std::int64_t fewest =
      std::clamp<std::int64_t>((bound_.megabytes_per_s - 1) / most + 1, 1, max_channels_);
  std::vector<int> counts;
  // Over several hosts fewer may carry more: nine rings on eight equal rails share one of them.
  for (int count = group; count <= max_channels_; count += group)
    if (has_network() || count >= fewest || count + group > max_channels_) counts.push_back(count);
  if (counts.empty()) counts.push_back(group);
  if (!has_network()) return counts;
  std::map<int, std::int64_t> rails_carry;  // by count
  for (const int count : counts)
    rails_carry[count] = count * std::min(rail_share(count / group) / passes, most);
  // Those that fill the rails first, the fewest channels before more.
  std::ranges::stable_sort(counts, std::greater<>(), [&](int count) {
    return std::min(rails_carry[count], bound_.megabytes_per_s / 100 * 98);
  });
  const auto widest =
      std::ranges::max_element(rails_carry, {}, &std::pair<const int, std::int64_t>::second);
  limit_bound(widest->second, fmt::format("at most {} {}, each on one rail", max_channels_,
                                          group == 1 ? "rings" : "trees"));
  return counts;
}

std::int64_t ClusterSearch::rail_share(int groups) const {
  std::int64_t least = LLONG_MAX;
  for (const HostKind& one : kinds_) {
    std::vector<int> counts(static_cast<std::size_t>(one.routes.rail_count()));
    for (const int rail : rails_for(one.routes, groups)) ++counts[static_cast<std::size_t>(rail)];
    for (int rail = 0; rail < one.routes.rail_count(); ++rail)
      if (const int count = counts[static_cast<std::size_t>(rail)]; count > 0)
        least = std::min(least, one.routes.rail_megabytes_per_s(rail) / count);
  }
  return least;
}

bool ClusterSearch::is_good(std::int64_t all_megabytes_per_s) const {
  return all_megabytes_per_s >= bound_.megabytes_per_s / 100 * 98;
}

ClusterSearch::Rate ClusterSearch::rate(
    const std::function<std::vector<HostChannel>(int host)>& channels_of) {
  Rate least{LLONG_MAX, {}};
  int narrow_host = -1, narrow_edge = -1, narrow_load = 0;
  for (int host = 0; host < host_count(); ++host) {
    const HostOrders& found = orders(host, channels_of(host));
    const HostRoutes& routes = kind(host).routes;
    const std::int64_t megabytes = channel_megabytes_per_s(routes, found.loads);
    if (megabytes >= least.megabytes_per_s) continue;
    least.megabytes_per_s = megabytes;
    narrow_host = host;
    narrow_edge = narrowest_edge(routes, found.loads);
    narrow_load = narrow_edge < 0 ? 0 : found.loads[static_cast<std::size_t>(narrow_edge)];
  }
  if (narrow_edge < 0) {
    least.limit = "no edge is a limit";
    return least;
  }
  const HostKind& narrowest = kind(narrow_host);
  const RouteEdge& edge = narrowest.routes.edges()[static_cast<std::size_t>(narrow_edge)];
  least.limit = fmt::format("{} is passed {} times and carries {:.4g} GB/s",
                            edge_text(*narrowest.topology, edge), narrow_load,
                            static_cast<double>(edge.megabytes_per_s) / 1000);
  if (has_network()) least.limit = host_text(*this, narrow_host) + ": " + least.limit;
  return least;
}

FoundChannels summary(const ClusterSearch& search, ChannelPattern pattern, int channels,
                      const ClusterSearch::Rate& rate) {
  FoundChannels found;
  found.pattern = pattern;
  found.channel_gigabytes_per_s = static_cast<double>(rate.megabytes_per_s) / 1000;
  found.gigabytes_per_s = static_cast<double>(rate.megabytes_per_s * channels) / 1000;
  found.bound_gigabytes_per_s = static_cast<double>(search.bound().megabytes_per_s) / 1000;
  found.bound_reason = search.bound().reason;
  found.limit = rate.limit;
  found.steps = search.steps_used();
  return found;
}

std::string_view pattern_name(ChannelPattern pattern) {
  return pattern == ChannelPattern::ring ? "ring" : "tree";
}

std::string reason_text(const FoundChannels& found) {
  const std::size_t count = found.channels.size();
  return fmt::format(
      "{} {}{} of {:.4g} GB/s, {:.4g} GB/s in all; {}. No orders carry more than {:.4g} GB/s: {}",
      count, pattern_name(found.pattern), count == 1 ? "" : "s", found.channel_gigabytes_per_s,
      found.gigabytes_per_s, found.limit, found.bound_gigabytes_per_s, found.bound_reason);
}

}  // namespace gyre::topology
