// Paths: how bytes get from one device or processor of a host to another, and how many per second.
// Among the paths with the fewest links the widest is taken. GPUs, ports and cores pass nothing on.
//
//   edge   one direction of the way between two nodes: up the tree, down it, or along a link. Paths
//          that share an edge share its bandwidth; both directions together share nothing.
#pragma once

#include "lib/topology/topology.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::topology {

// The parts between two ends, nearest first, with NCCL's names (and CACHE, which it has not).
enum class PathClass : std::uint8_t {
  same,          // LOC
  cache,         // CACHE: two cores that share one
  nvlink,        // NVL: directly, or through switches
  c2c,           // C2C: a GPU and its processor
  one_switch,    // PIX
  switches,      // PXB: several PCIe switches, no processor
  processor,     // PHB: one NUMA node
  node,          // NODE: NUMA nodes of one package
  interconnect,  // SYS: between packages
  none,          // DIS
};
std::string_view path_class_name(PathClass path);  // "NVL"

// What an edge within a processor carries: no limit to anything outside.
inline constexpr double local_gigabytes_per_s = 5000;
// Where nobody knows: a PCIe 3.0 slot of 16 lanes, a socket's link of Skylake's day.
inline constexpr double unknown_pci = 12, unknown_interconnect = 10, unknown_nvlink = 20;

struct DevicePath {
  PathClass kind = PathClass::none;
  double gigabytes_per_s = 0;  // of its narrowest edge
  std::vector<int> nodes;      // from one end to the other
  std::vector<int> edges;      // in the same order; see EdgeTable
};

// The edges of a topology, by number. A figure that is unknown is replaced by a careful one.
class EdgeTable {
 public:
  explicit EdgeTable(const Topology& topology);

  struct Edge {
    int from = 0, to = 0;
    double gigabytes_per_s = 0;
    bool is_guessed = false;
    bool is_c2c = false;  // joins a GPU and its processor
  };
  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<int>& leaving(int node) const {
    return leaving_[static_cast<std::size_t>(node)];
  }

  // The edges of a path, for the same path in the other direction.
  static std::vector<int> backwards(const std::vector<int>& edges);

  // From one node to each of the others, by their index; kind `none` where there is no path.
  std::vector<DevicePath> paths_from(int node) const;
  // To one node.
  DevicePath path_between(int from, int to) const;
  // To some nodes, in their order.
  std::vector<DevicePath> paths_from(int node, std::span<const int> targets) const;

 private:
  // How a search from one node came to another.
  struct Reached {
    int hops = -1;
    double width = 0;
    int edge = -1;  // the last one
  };

  void add(int a, int b, double gigabytes_per_s, double guess, bool is_c2c);
  std::vector<Reached> reach(int node) const;
  double to_parent(const TopologyNode& node) const;
  PathClass classify(const DevicePath& path) const;

  const Topology& topology_;
  std::vector<Edge> edges_;
  std::vector<std::vector<int>> leaving_;  // edges, by node
};

}  // namespace gyre::topology
