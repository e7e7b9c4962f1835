#include "tools/gyre/topo_search.h"

#include "lib/topology/channel_text.h"
#include "lib/topology/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace gyre::tools {
namespace {

using namespace topology;

std::string ranks_text(const Cluster& cluster) {
  const ClusterHost& first = cluster.hosts.front();
  std::vector<std::string> names;
  for (const ClusterMember& member : first.members) {
    const TopologyNode& node = cluster.topology(first).node(member.node);
    const std::string name = short_name(node);
    names.push_back(name.empty() ? node_text(node) : name);
  }
  if (cluster.hosts.size() == 1)
    return fmt::format("ranks 0 to {}: {}\n", names.size() - 1, fmt::join(names, " "));
  return fmt::format("{} hosts, ranks 0 to {} on the first: {}\n", cluster.hosts.size(),
                     names.size() - 1, fmt::join(names, " "));
}

}  // namespace

Result<TopoSearch> search_machine(Topology machine, const TopoQuestion& asked) {
  const std::vector<int> members = usual_members(machine);
  const SearchLimits limits{.max_channels = asked.max_channels};
  TopoSearch search{equal_hosts(std::move(machine), asked.hosts, members), {}};
  if (asked.rings) {
    GYRE_ASSIGN(FoundChannels found, find_rings(search.cluster, limits));
    search.found.push_back(std::move(found));
  }
  if (asked.trees) {
    if (asked.hosts > 1 && asked.max_channels < 2)
      return invalid_argument("--trees over several hosts come in pairs: --channels is at least 2");
    GYRE_ASSIGN(FoundChannels found, find_trees(search.cluster, limits));
    search.found.push_back(std::move(found));
  }
  return search;
}

std::string search_text(const TopoSearch& search) {
  std::string all = ranks_text(search.cluster);
  for (const FoundChannels& found : search.found) {
    all += reason_text(found) + "\n";
    for (const std::string& line : channel_lines(search.cluster, found)) all += "  " + line + "\n";
  }
  return all;
}

}  // namespace gyre::tools
