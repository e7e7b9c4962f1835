#include "lib/topology/cluster.h"

#include <fmt/format.h>

#include <utility>

namespace gyre::topology {
namespace {

Status check_member(const Topology& topology, const ClusterMember& member,
                    std::vector<bool>& seen) {
  if (member.node < 0 || member.node >= static_cast<int>(topology.nodes.size()))
    return invalid_argument(fmt::format("rank {} is on node {}, and its host has {} nodes",
                                        member.rank, member.node, topology.nodes.size()));
  if (const TopologyNode& node = topology.node(member.node); !may_hold_rank(node.kind))
    return invalid_argument(
        fmt::format("rank {} is on {}, which computes nothing", member.rank, node_text(node)));
  if (member.rank < 0 || member.rank >= static_cast<int>(seen.size()))
    return invalid_argument(
        fmt::format("rank {} of a cluster of {} ranks", member.rank, seen.size()));
  if (seen[static_cast<std::size_t>(member.rank)])
    return invalid_argument(fmt::format("rank {} is there twice", member.rank));
  seen[static_cast<std::size_t>(member.rank)] = true;
  return {};
}

}  // namespace

bool may_hold_rank(NodeKind kind) {
  return kind == NodeKind::gpu || kind == NodeKind::core || kind == NodeKind::cache ||
         kind == NodeKind::numa_node || kind == NodeKind::package || kind == NodeKind::host;
}

int Cluster::rank_count() const {
  std::size_t count = 0;
  for (const ClusterHost& host : hosts) count += host.members.size();
  return static_cast<int>(count);
}

Status check(const Cluster& cluster) {
  std::size_t count = 0;
  for (const ClusterHost& host : cluster.hosts) {
    if (host.machine < 0 || host.machine >= static_cast<int>(cluster.machines.size()))
      return invalid_argument(fmt::format("a host of machine {}, of {} machines", host.machine,
                                          cluster.machines.size()));
    if (host.members.empty() || host.members.size() > max_members)
      return invalid_argument(fmt::format("a host with {} ranks; a search takes 1 to {}",
                                          host.members.size(), max_members));
    count += host.members.size();
  }
  if (count == 0 || count > max_cluster_ranks)
    return invalid_argument(
        fmt::format("a cluster of {} ranks; a search takes 1 to {}", count, max_cluster_ranks));
  std::vector<bool> seen(count);
  for (const ClusterHost& host : cluster.hosts)
    for (const ClusterMember& member : host.members)
      GYRE_TRY(check_member(cluster.topology(host), member, seen));
  return {};
}

std::vector<int> usual_members(const Topology& topology) {
  std::vector<int> nodes = topology.all(NodeKind::gpu);
  if (nodes.empty()) nodes = topology.all(NodeKind::core);
  if (nodes.empty()) nodes = {0};
  if (nodes.size() > max_members) nodes.resize(max_members);
  return nodes;
}

Cluster equal_hosts(Topology topology, int hosts, const std::vector<int>& nodes) {
  Cluster cluster;
  cluster.machines.push_back(std::move(topology));
  int rank = 0;
  for (int i = 0; i < hosts; ++i) {
    ClusterHost& host = cluster.hosts.emplace_back();
    for (const int node : nodes) host.members.push_back({rank++, node});
  }
  return cluster;
}

}  // namespace gyre::topology
