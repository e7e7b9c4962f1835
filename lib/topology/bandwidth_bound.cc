#include "lib/topology/bandwidth_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

namespace gyre::topology {
namespace {

const std::int64_t no_limit = whole_megabytes(local_gigabytes_per_s);

// Which edges some route between members takes, or one between a member and the network.
using EdgeMarks = std::vector<bool>;

EdgeMarks edges_between(const HostRoutes& routes) {
  EdgeMarks marks(routes.edges().size());
  for (int from = 0; from < routes.member_count(); ++from)
    for (int to = 0; to < routes.member_count(); ++to)
      for (const int edge : routes.between(from, to)) marks[static_cast<std::size_t>(edge)] = true;
  return marks;
}

void mark_network(const HostRoutes& routes, EdgeMarks& marks) {
  for (int member = 0; member < routes.member_count(); ++member)
    for (int rail = 0; rail < routes.rail_count(); ++rail)
      for (const auto* path : {&routes.leaving(member, rail), &routes.entering(member, rail)})
        for (const int edge : *path) marks[static_cast<std::size_t>(edge)] = true;
}

// Max-flow by Dinic's algorithm.
class FlowNetwork {
 public:
  FlowNetwork(const HostRoutes& routes, const EdgeMarks& edges, std::int64_t& steps)
      : steps_(steps) {
    for (std::size_t i = 0; i < edges.size(); ++i)
      if (edges[i]) add(routes.edges()[i]);
  }

  void add(const RouteEdge& edge) {
    const int from = vertex(edge.from), to = vertex(edge.to);
    arcs_of_[static_cast<std::size_t>(from)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({to, edge.megabytes_per_s});
    arcs_of_[static_cast<std::size_t>(to)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({from, 0});
    capacities_.push_back(edge.megabytes_per_s);
  }

  // No more than `most` is looked for. It is also the answer when the steps are used up.
  std::int64_t flow(int from_node, int to_node, std::int64_t most) {
    const auto from = vertices_.find(from_node), to = vertices_.find(to_node);
    if (from == vertices_.end() || to == vertices_.end()) return 0;
    if (steps_ <= 0) return most;
    for (std::size_t i = 0; i < capacities_.size(); ++i) {
      arcs_[2 * i].left = capacities_[i];
      arcs_[2 * i + 1].left = 0;
    }
    std::int64_t sum = 0;
    steps_ -= static_cast<std::int64_t>(arcs_.size());
    while (sum < most && find_levels(from->second, to->second)) {
      next_.assign(arcs_of_.size(), 0);
      while (const std::int64_t more = push(from->second, to->second, most - sum)) sum += more;
      if (steps_ <= 0) return most;
    }
    return steps_ > 0 ? sum : most;
  }

 private:
  struct Arc {
    int to;
    std::int64_t left;
  };

  int vertex(int node) {
    const auto [place, is_new] = vertices_.emplace(node, static_cast<int>(arcs_of_.size()));
    if (is_new) arcs_of_.emplace_back();
    return place->second;
  }

  bool find_levels(int from, int to) {
    levels_.assign(arcs_of_.size(), -1);
    levels_[static_cast<std::size_t>(from)] = 0;
    steps_ -= static_cast<std::int64_t>(arcs_.size());
    std::vector<int> queue = {from};
    for (std::size_t i = 0; i < queue.size(); ++i)
      for (const int index : arcs_of_[static_cast<std::size_t>(queue[i])]) {
        const Arc& arc = arcs_[static_cast<std::size_t>(index)];
        int& level = levels_[static_cast<std::size_t>(arc.to)];
        if (arc.left == 0 || level >= 0) continue;
        level = levels_[static_cast<std::size_t>(queue[i])] + 1;
        queue.push_back(arc.to);
      }
    return levels_[static_cast<std::size_t>(to)] >= 0;
  }

  // One path of the levels, by an explicit stack: files may be deep.
  std::int64_t push(int from, int to, std::int64_t most) {
    std::vector<int> path;  // arcs
    int at = from;
    while (at != to) {
      const auto& arcs = arcs_of_[static_cast<std::size_t>(at)];
      std::size_t& next = next_[static_cast<std::size_t>(at)];
      while (next < arcs.size() && !leads_on(at, arcs[next])) ++next;
      if (--steps_ <= 0) return 0;
      if (next < arcs.size()) {
        path.push_back(arcs[next]);
        at = arcs_[static_cast<std::size_t>(arcs[next])].to;
        continue;
      }
      if (path.empty()) return 0;
      at = arcs_[static_cast<std::size_t>(path.back() ^ 1)].to;
      path.pop_back();
      ++next_[static_cast<std::size_t>(at)];
    }
    std::int64_t amount = most;
    for (const int arc : path) amount = std::min(amount, arcs_[static_cast<std::size_t>(arc)].left);
    for (const int arc : path) {
      arcs_[static_cast<std::size_t>(arc)].left -= amount;
      arcs_[static_cast<std::size_t>(arc ^ 1)].left += amount;
    }
    return amount;
  }

  bool leads_on(int at, int index) const {
    const Arc& arc = arcs_[static_cast<std::size_t>(index)];
    return arc.left > 0 &&
           levels_[static_cast<std::size_t>(arc.to)] == levels_[static_cast<std::size_t>(at)] + 1;
  }

  std::int64_t& steps_;
  std::map<int, int> vertices_;  // by node
  std::vector<std::vector<int>> arcs_of_;
  std::vector<Arc> arcs_;  // that of an edge, and behind it the way back
  std::vector<std::int64_t> capacities_;
  std::vector<int> levels_;
  std::vector<std::size_t> next_;
};

// What the edges carry in sum that leave (or enter) members on their way to other members.
std::int64_t volume(const HostRoutes& routes, bool leaving) {
  EdgeMarks marks(routes.edges().size());
  for (int from = 0; from < routes.member_count(); ++from)
    for (int to = 0; to < routes.member_count(); ++to)
      if (const auto& path = routes.between(from, to); !path.empty())
        marks[static_cast<std::size_t>(leaving ? path.front() : path.back())] = true;
  std::int64_t sum = 0;
  for (std::size_t edge = 0; edge < marks.size(); ++edge)
    if (marks[edge]) sum += routes.edges()[edge].megabytes_per_s;
  return sum;
}

}  // namespace

BandwidthBound host_bound(const Topology& topology, const HostRoutes& routes,
                          ChannelPattern pattern, bool leaves_host, std::int64_t& steps) {
  BandwidthBound bound{no_limit, "no edge of the host is a limit"};
  const auto limit = [&](std::int64_t megabytes_per_s, const std::string& reason) {
    if (megabytes_per_s >= bound.megabytes_per_s) return;
    bound = {megabytes_per_s, reason};
  };
  std::set<int> nodes;
  for (int member = 0; member < routes.member_count(); ++member) nodes.insert(routes.node(member));
  // Of a ring in one host the network counts as nothing, and of one that leaves as another member.
  const EdgeMarks inside = edges_between(routes);
  FlowNetwork host(routes, inside, steps);
  const bool once = pattern == ChannelPattern::ring && leaves_host;
  const int first = *nodes.begin();
  for (const int node : nodes) {
    if (node == first) continue;
    // Both directions carry as much.
    const std::int64_t most = bound.megabytes_per_s;
    limit(host.flow(first, node, most) * (once ? 2 : 1),
          fmt::format("the narrowest border between {} and {}", node_text(topology.node(first)),
                      node_text(topology.node(node))));
  }
  if (leaves_host) {
    EdgeMarks edges = inside;
    mark_network(routes, edges);
    FlowNetwork all(routes, edges, steps);
    for (const int node : nodes)
      for (const auto& [from, to] : {std::pair(network_node, node), std::pair(node, network_node)})
        limit(all.flow(from, to, bound.megabytes_per_s),
              fmt::format("the narrowest border between {} and the network",
                          node_text(topology.node(node))));
  }
  // Arcs between different nodes that each unit of bandwidth needs at least.
  const auto different = static_cast<std::int64_t>(nodes.size());
  const std::int64_t arcs = pattern == ChannelPattern::tree ? 2 * (different - 1)
                            : leaves_host                   ? different - 1
                                                            : different;
  if (different > 1)
    for (const bool leaving : {true, false})
      limit(volume(routes, leaving) / arcs, fmt::format("all that {} members {} each other",
                                                        different, leaving ? "send" : "take from"));
  return bound;
}

std::int64_t network_megabytes_per_s(const HostRoutes& routes, std::int64_t& steps) {
  constexpr int all_members = network_node - 1;
  EdgeMarks edges(routes.edges().size());
  mark_network(routes, edges);
  FlowNetwork network(routes, edges, steps);
  for (int member = 0; member < routes.member_count(); ++member)
    network.add({all_members, routes.node(member), no_limit});
  return network.flow(all_members, network_node, no_limit);
}

}  // namespace gyre::topology
