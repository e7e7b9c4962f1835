// Cluster: the hosts of a job, and which device or processor each rank uses. Equal hosts share one
// Topology, so that a search looks at it once.
#pragma once

#include "lib/base/status.h"
#include "lib/topology/topology.h"

#include <vector>

namespace gyre::topology {

struct ClusterMember {
  int rank = 0;
  int node = 0;  // a GPU, a core, or a wider place for a rank that is bound to no core
  friend bool operator==(const ClusterMember&, const ClusterMember&) = default;
};

struct ClusterHost {
  int machine = 0;  // index into Cluster::machines
  std::vector<ClusterMember> members;
  friend bool operator==(const ClusterHost&, const ClusterHost&) = default;
};

struct Cluster {
  std::vector<Topology> machines;
  std::vector<ClusterHost> hosts;

  const Topology& topology(const ClusterHost& host) const {
    return machines[static_cast<std::size_t>(host.machine)];
  }
  int rank_count() const;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// Whether a rank can run there: a GPU, or a place of processors.
bool may_hold_rank(NodeKind kind);

// More in one host would take a search too long; hosts may be as many as there are ranks.
inline constexpr int max_members = 512;
inline constexpr int max_cluster_ranks = 1 << 20;

// Whether ranks 0, 1, ... are there once each, on hosts and nodes that exist.
Status check(const Cluster& cluster);

// Where ranks run if nobody says: on all GPUs, or if there are none on all cores, at most
// `max_members`. The host alone if it has no cores.
std::vector<int> usual_members(const Topology& topology);
// As many equal hosts, with a rank on each of those nodes, numbered host by host.
Cluster equal_hosts(Topology topology, int hosts, const std::vector<int>& nodes);

}  // namespace gyre::topology
