#include "lib/topology/outline.h"

#include "lib/topology/routes.h"
#include "lib/topology/speeds.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gyre::topology {
namespace {

double in_whole_megabytes(double gigabytes_per_s) {
  if (gigabytes_per_s <= 0) return 0;
  return static_cast<double>(whole_megabytes(gigabytes_per_s)) / 1000;
}

bool is_outlined(NodeKind kind) {
  return kind == NodeKind::package || kind == NodeKind::numa_node || kind == NodeKind::gpu ||
         kind == NodeKind::nv_switch;
}

// The fields that searches read, and those by which people know it.
TopologyNode outlined(const TopologyNode& node) {
  TopologyNode made;
  made.kind = node.kind;
  if (node.kind == NodeKind::host) return made;
  made.number = node.number;
  made.bus_id = node.bus_id;
  made.gigabytes_per_s = in_whole_megabytes(node.gigabytes_per_s);
  if (node.processor && interconnect_gigabytes_per_s(*node.processor) > 0)
    made.processor = {node.processor->vendor, node.processor->family, node.processor->model, {}};
  if (node.gpu) {
    GpuTraits& gpu = made.gpu.emplace();
    gpu.capability = node.gpu->capability;
    gpu.nic_reaches = node.gpu->nic_reaches;
  }
  if (!node.port) return made;
  made.name = node.name;
  made.gigabytes_per_s = in_whole_megabytes(port_speed(node).gigabytes_per_s);
  PortTraits& port = made.port.emplace();
  port.has_verbs = node.port->has_verbs;
  port.number = node.port->number;
  port.nic_reaches_gpus = node.port->nic_reaches_gpus;
  return made;
}

}  // namespace

Topology outline(const Topology& machine) {
  std::vector<bool> is_kept(machine.nodes.size());
  const auto keep = [&](int node) {
    for (; node >= 0 && !is_kept[static_cast<std::size_t>(node)]; node = machine.node(node).parent)
      is_kept[static_cast<std::size_t>(node)] = true;
  };
  keep(0);
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i)
    if (is_outlined(machine.node(i).kind)) keep(i);
  for (const int port : usable_ports(machine)) keep(port);
  Topology made;
  std::vector<int> index_of(machine.nodes.size(), -1);
  const auto new_index = [&](int node) { return index_of[static_cast<std::size_t>(node)]; };
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    if (!is_kept[i]) continue;
    TopologyNode node = outlined(machine.nodes[i]);
    if (i > 0) node.parent = new_index(machine.nodes[i].parent);
    index_of[i] = made.add(std::move(node));
  }
  for (const TopologyLink& link : machine.links) {
    TopologyLink one = link;
    one.from = new_index(link.from);
    one.to = new_index(link.to);
    one.gigabytes_per_s = in_whole_megabytes(link.gigabytes_per_s);
    if (one.from >= 0 && one.to >= 0) made.links.push_back(one);
  }
  return made;
}

bool has_several_ways(const Topology& machine) {
  const auto is_nvlink = [](const TopologyLink& link) { return link.kind == JointKind::nvlink; };
  return std::ranges::any_of(machine.links, is_nvlink) || usable_ports(machine).size() > 1;
}

}  // namespace gyre::topology
