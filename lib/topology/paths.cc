#include "lib/topology/paths.h"

#include "lib/topology/speeds.h"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <utility>

namespace gyre::topology {
namespace {

constexpr std::array<std::string_view, 10> class_names = {"LOC", "CACHE", "NVL",  "C2C", "PIX",
                                                          "PXB", "PHB",   "NODE", "SYS", "DIS"};

// Whether bytes pass through it on their way elsewhere: through a NIC to its ports.
bool passes_on(NodeKind kind) {
  return kind != NodeKind::gpu && kind != NodeKind::port && kind != NodeKind::core;
}

bool is_device(NodeKind kind) {
  return kind == NodeKind::pci_switch || kind == NodeKind::gpu || kind == NodeKind::nic;
}

}  // namespace

std::string_view path_class_name(PathClass path) {
  return class_names[static_cast<std::size_t>(path)];
}

EdgeTable::EdgeTable(const Topology& topology)
    : topology_(topology), leaving_(topology.nodes.size()) {
  for (int i = 1; i < static_cast<int>(topology.nodes.size()); ++i) {
    const TopologyNode& node = topology.node(i);
    if (node.kind == NodeKind::nv_switch) continue;  // GPUs reach it by NVLink alone
    const double guess = is_device(node.kind) ? unknown_pci
                         : node.parent == 0   ? unknown_interconnect
                                              : local_gigabytes_per_s;
    add(i, node.parent, to_parent(node), guess, false);
  }
  for (const TopologyLink& link : topology.links)
    add(link.from, link.to, link.gigabytes_per_s, unknown_nvlink * link.lanes,
        link.kind == JointKind::c2c);
}

// A port's wire lies behind it: to its NIC there is no limit of its own.
double EdgeTable::to_parent(const TopologyNode& node) const {
  if (is_device(node.kind)) return node.gigabytes_per_s;
  const bool joins_packages = node.parent == 0 && node.processor.has_value();
  return joins_packages ? interconnect_gigabytes_per_s(*node.processor) : 0;
}

void EdgeTable::add(int a, int b, double gigabytes_per_s, double guess, bool is_c2c) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    leaving_[static_cast<std::size_t>(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back(
        {from, to, gigabytes_per_s > 0 ? gigabytes_per_s : guess, gigabytes_per_s <= 0, is_c2c});
  }
}

// `add` makes both directions one after the other.
std::vector<int> EdgeTable::backwards(const std::vector<int>& edges) {
  std::vector<int> found(edges.rbegin(), edges.rend());
  for (int& edge : found) edge ^= 1;
  return found;
}

std::vector<EdgeTable::Reached> EdgeTable::reach(int node) const {
  std::vector<Reached> reached(topology_.nodes.size());
  reached[static_cast<std::size_t>(node)] = {0, 1e9, -1};
  std::deque<int> next = {node};
  while (!next.empty()) {
    const int at = next.front();
    next.pop_front();
    const Reached here = reached[static_cast<std::size_t>(at)];
    if (at != node && !passes_on(topology_.node(at).kind)) continue;
    for (const int edge : leaving(at)) {
      const Edge& way = edges_[static_cast<std::size_t>(edge)];
      Reached& there = reached[static_cast<std::size_t>(way.to)];
      const double width = std::min(here.width, way.gigabytes_per_s);
      const bool is_new = there.hops < 0;
      // All of one distance are taken out before any of the next, so a wider way of the same length
      // is found before anybody goes on from there. Of two that are as wide, the one with the wider
      // last edge leaves more to others.
      const auto is_better = [&] {
        if (there.hops != here.hops + 1) return false;
        const double last = edges_[static_cast<std::size_t>(there.edge)].gigabytes_per_s;
        return std::pair(width, way.gigabytes_per_s) > std::pair(there.width, last);
      };
      if (!is_new && !is_better()) continue;
      there = {here.hops + 1, width, edge};
      if (is_new) next.push_back(way.to);
    }
  }
  return reached;
}

std::vector<DevicePath> EdgeTable::paths_from(int node) const {
  std::vector<int> all(topology_.nodes.size());
  std::iota(all.begin(), all.end(), 0);
  return paths_from(node, all);
}

DevicePath EdgeTable::path_between(int from, int to) const {
  return std::move(paths_from(from, std::span(&to, 1)).front());
}

std::vector<DevicePath> EdgeTable::paths_from(int node, std::span<const int> targets) const {
  const std::vector<Reached> reached = reach(node);
  std::vector<DevicePath> paths(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Reached& last = reached[static_cast<std::size_t>(targets[i])];
    if (last.hops < 0) continue;
    DevicePath& path = paths[i];
    path.gigabytes_per_s = last.hops == 0 ? local_gigabytes_per_s : last.width;
    for (int at = targets[i];;) {
      path.nodes.push_back(at);
      const int edge = reached[static_cast<std::size_t>(at)].edge;
      if (edge < 0) break;
      path.edges.push_back(edge);
      at = edges_[static_cast<std::size_t>(edge)].from;
    }
    std::ranges::reverse(path.nodes);
    std::ranges::reverse(path.edges);
    path.kind = classify(path);
  }
  return paths;
}

PathClass EdgeTable::classify(const DevicePath& path) const {
  const std::vector<int>& nodes = path.nodes;
  const auto count = [&](NodeKind kind) {
    return std::ranges::count_if(nodes, [&](int at) { return topology_.node(at).kind == kind; });
  };
  if (nodes.size() == 1) return PathClass::same;
  if (count(NodeKind::core) + count(NodeKind::cache) == std::ssize(nodes)) return PathClass::cache;
  const auto numa_nodes = count(NodeKind::numa_node), packages = count(NodeKind::package);
  const bool at_root = count(NodeKind::host) > 0;
  if (packages > 1 || (at_root && numa_nodes + packages > 1)) return PathClass::interconnect;
  if (numa_nodes > 1) return PathClass::node;
  const bool by_nvlink =
      count(NodeKind::nv_switch) > 0 || (nodes.size() == 2 && count(NodeKind::gpu) == 2);
  if (by_nvlink) return PathClass::nvlink;
  const bool is_joined = std::ranges::any_of(
      path.edges, [&](int edge) { return edges_[static_cast<std::size_t>(edge)].is_c2c; });
  if (is_joined) return PathClass::c2c;
  const bool by_processor = at_root || numa_nodes + packages > 0;
  if (by_processor) return PathClass::processor;
  return count(NodeKind::pci_switch) > 1 ? PathClass::switches : PathClass::one_switch;
}

}  // namespace gyre::topology
