#include "tools/gyre/topo_search.h"

#include "lib/topology/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace gyre::tools {
namespace {

using namespace topology;

class SearchText {
 public:
  explicit SearchText(const TopoSearch& search) : cluster_(search.cluster) {
    for (std::size_t host = 0; host < cluster_.hosts.size(); ++host)
      for (const ClusterMember& member : cluster_.hosts[host].members)
        hosts_[member.rank] = static_cast<int>(host);
  }

  std::string ranks() const {
    const ClusterHost& first = cluster_.hosts.front();
    std::vector<std::string> names;
    for (const ClusterMember& member : first.members) {
      const TopologyNode& node = cluster_.topology(first).node(member.node);
      const std::string name = short_name(node);
      names.push_back(name.empty() ? node_text(node) : name);
    }
    if (cluster_.hosts.size() == 1)
      return fmt::format("ranks 0 to {}: {}\n", names.size() - 1, fmt::join(names, " "));
    return fmt::format("{} hosts, ranks 0 to {} on the first: {}\n", cluster_.hosts.size(),
                       names.size() - 1, fmt::join(names, " "));
  }

  // "ring 0: 0 1 2 3 (mlx5_1 to mlx5_1) 4 5 6 7 (mlx5_0 to mlx5_0)"
  std::string channel(ChannelPattern pattern, std::size_t index,
                      const FoundChannel& channel) const {
    std::string line = fmt::format("  {} {}:", pattern_name(pattern), index);
    int host = -1;
    for (const int rank : channel.order) {
      const int now = hosts_.at(rank);
      if (now != host && host >= 0) line += crossing(channel, now, pattern);
      host = now;
      line += fmt::format(" {}", rank);
    }
    if (pattern == ChannelPattern::ring && cluster_.hosts.size() > 1)
      line += crossing(channel, hosts_.at(channel.order.front()), pattern);
    return line + "\n";
  }

 private:
  // How the ring comes to a host, or the host's head to its parent.
  std::string crossing(const FoundChannel& channel, int host, ChannelPattern pattern) const {
    const bool is_tree = pattern == ChannelPattern::tree;
    const auto one = std::ranges::find(channel.crossings, host,
                                       is_tree ? &HostCrossing::from_host : &HostCrossing::to_host);
    const std::string from = port(one->from_host, one->from_port);
    const std::string to = port(one->to_host, one->to_port);
    if (!is_tree) return fmt::format(" ({} to {})", from, to);
    for (const int rank : channel.order)
      if (hosts_.at(rank) == host)
        return fmt::format(
            "; under {} ({} to {}):", channel.parents[static_cast<std::size_t>(rank)], from, to);
    return {};
  }

  std::string port(int host, int node) const {
    return cluster_.topology(cluster_.hosts[static_cast<std::size_t>(host)]).node(node).name;
  }

  const Cluster& cluster_;
  std::map<int, int> hosts_;  // by rank
};

}  // namespace

Result<TopoSearch> search_machine(Topology machine, int hosts, bool rings, bool trees) {
  const std::vector<int> members = usual_members(machine);
  TopoSearch search{equal_hosts(std::move(machine), hosts, members), {}};
  if (rings) {
    GYRE_ASSIGN(FoundChannels found, find_rings(search.cluster));
    search.found.push_back(std::move(found));
  }
  if (trees) {
    GYRE_ASSIGN(FoundChannels found, find_trees(search.cluster));
    search.found.push_back(std::move(found));
  }
  return search;
}

std::string search_text(const TopoSearch& search) {
  const SearchText text(search);
  std::string all = text.ranks();
  for (const FoundChannels& found : search.found) {
    all += reason_text(found) + "\n";
    for (std::size_t i = 0; i < found.channels.size(); ++i)
      all += text.channel(found.pattern, i, found.channels[i]);
  }
  return all;
}

}  // namespace gyre::tools
