#include "lib/topology/topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace gyre::topology {
namespace {

constexpr std::array<std::string_view, node_kind_count> kind_names = {
    "host",        "package", "NUMA node", "cache", "core",
    "PCIe switch", "GPU",     "NIC",       "port",  "NVSwitch"};

// Which kinds a node of each kind may lie in.
bool may_lie_in(NodeKind kind, NodeKind parent) {
  using enum NodeKind;
  switch (kind) {
    case host:
      return false;
    case package:
      return parent == host || parent == numa_node;
    case numa_node:
      return parent == host || parent == package;
    case cache:
      return parent == host || parent == package || parent == numa_node || parent == cache;
    case core:
      return parent == host || parent == package || parent == numa_node || parent == cache;
    case port:
      return parent == nic || parent == host;
    case pci_switch:
    case gpu:
    case nic:
    case nv_switch:
      return parent == host || parent == package || parent == numa_node || parent == pci_switch;
  }
  return false;
}

bool is_figure(double value) { return std::isfinite(value) && value >= 0 && value < 1e9; }

class Checker {
 public:
  explicit Checker(const Topology& topology) : topology_(topology) {}

  Status check() {
    if (topology_.nodes.empty() || topology_.nodes[0].kind != NodeKind::host)
      return invalid_argument("a topology begins with its host");
    if (topology_.nodes.size() > max_nodes)
      return invalid_argument(fmt::format("a topology of {} nodes; the most are {}",
                                          topology_.nodes.size(), max_nodes));
    for (int i = 0; i < static_cast<int>(topology_.nodes.size()); ++i) GYRE_TRY(check_node(i));
    for (const TopologyLink& link : topology_.links) GYRE_TRY(check_link(link));
    return {};
  }

 private:
  Status check_node(int index) {
    const TopologyNode& node = topology_.node(index);
    if (index == 0) return node.parent == -1 ? check_ucx(node) : wrong(node, "has a parent");
    if (node.parent < 0 || node.parent >= index) return wrong(node, "lies in no node before it");
    const TopologyNode& parent = topology_.node(node.parent);
    if (!may_lie_in(node.kind, parent.kind))
      return wrong(node, fmt::format("cannot lie in {}", node_text(parent)));
    if (!parent.processors.contains_all(node.processors))
      return wrong(node,
                   fmt::format("has processors {}, of which {} has only {}", node.processors.list(),
                               node_text(parent), parent.processors.list()));
    if (!is_figure(node.gigabytes_per_s)) return wrong(node, "has a bandwidth that is no figure");
    // Words about links name nodes by it.
    if (std::ranges::any_of(node.bus_id, [](char c) { return c >= 0 && c <= ' '; }))
      return wrong(node, "has a bus id with a blank");
    if (!node.bus_id.empty() && !bus_ids_.insert(node.bus_id).second)
      return wrong(node, "has the bus id of another node");
    if (node.kind == NodeKind::port && !ports_.insert({node.name, port_number(node)}).second)
      return wrong(node, "has the name of another port");
    GYRE_TRY(check_ucx(node));
    if (node.kind == NodeKind::core) return check_core(node);
    return {};
  }

  static Status check_ucx(const TopologyNode& node) {
    if (!node.ucx.empty() && node.kind != NodeKind::port && node.kind != NodeKind::host)
      return wrong(node, "has a transport of UCX, which is neither a port nor the host");
    std::set<std::pair<std::string_view, std::string_view>> known;
    for (const UcxTransport& one : node.ucx) {
      if (one.transport.empty() || one.device.empty())
        return wrong(node, "has a transport of UCX without a name or without a device");
      if (!known.insert({one.transport, one.device}).second)
        return wrong(node, fmt::format("has UCX's {} on {} twice", one.transport, one.device));
      for (const double figure :
           {one.dedicated_gigabytes_per_s, one.shared_gigabytes_per_s, one.gigabytes_per_s(),
            one.latency_us, one.latency_per_endpoint_us, one.overhead_us})
        if (!is_figure(figure))
          return wrong(node, fmt::format("has UCX's {} with what is no figure", one.transport));
    }
    return {};
  }

  Status check_core(const TopologyNode& node) {
    if (cores_.intersects(node.processors)) return wrong(node, "has a processor of another core");
    cores_.insert_all(node.processors);
    return {};
  }

  Status check_link(const TopologyLink& link) {
    const int count = static_cast<int>(topology_.nodes.size());
    if (link.from < 0 || link.from >= link.to || link.to >= count)
      return invalid_argument(
          fmt::format("a link between nodes {} and {}, which are not two nodes "
                      "in order",
                      link.from, link.to));
    if (link.lanes < 1 || !is_figure(link.gigabytes_per_s))
      return wrong(topology_.node(link.from), "has a link without lanes, or of no bandwidth");
    if (!joined_.insert({link.from, link.to}).second)
      return wrong(topology_.node(link.from),
                   "is linked twice with " + node_text(topology_.node(link.to)));
    return {};
  }

  static int port_number(const TopologyNode& node) { return node.port ? node.port->number : 0; }
  static Status wrong(const TopologyNode& node, std::string_view what) {
    return invalid_argument(fmt::format("{} {}", node_text(node), what));
  }

  const Topology& topology_;
  std::set<std::string> bus_ids_;
  std::set<std::pair<std::string, int>> ports_;
  std::set<std::pair<int, int>> joined_;
  ProcessorSet cores_;
};

}  // namespace

std::string_view kind_name(NodeKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

int Topology::add(TopologyNode node) {
  nodes.push_back(std::move(node));
  return static_cast<int>(nodes.size()) - 1;
}

std::vector<std::vector<int>> Topology::children() const {
  std::vector<std::vector<int>> found(nodes.size());
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i)
    if (const int parent = node(i).parent; parent >= 0)
      found[static_cast<std::size_t>(parent)].push_back(i);
  return found;
}

std::vector<int> Topology::all(NodeKind kind) const {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i)
    if (node(i).kind == kind) found.push_back(i);
  return found;
}

int Topology::above(int index, NodeKind kind) const {
  while (index >= 0 && node(index).kind != kind) index = node(index).parent;
  return index;
}

int Topology::find_bus_id(std::string_view bus_id) const {
  if (bus_id.empty()) return -1;
  const auto found = std::ranges::find(nodes, bus_id, &TopologyNode::bus_id);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::string kernel_bus_id(std::string_view text) {
  std::string id(text);
  std::ranges::transform(id, id.begin(), [](char c) { return static_cast<char>(tolower(c)); });
  if (std::ranges::count(id, ':') == 1) id = "0000:" + id;
  if (id.size() > 12 && id.starts_with("0000")) id = id.substr(id.size() - 12);
  return id;
}

Topology flat_topology(std::string host, const ProcessorSet& processors) {
  Topology topology;
  TopologyNode root;
  root.name = std::move(host);
  root.processors = processors;
  topology.add(std::move(root));
  for (const int processor : processors.numbers()) {
    TopologyNode core;
    core.kind = NodeKind::core;
    core.parent = 0;
    core.number = processor;
    core.processors.insert(processor);
    topology.add(std::move(core));
  }
  return topology;
}

Status check(const Topology& topology) { return Checker(topology).check(); }

std::string node_text(const TopologyNode& node) {
  const std::string_view kind = kind_name(node.kind);
  if (node.kind == NodeKind::cache && node.number >= 0)
    return fmt::format("L{} cache {}", node.level, node.number);
  if (node.kind == NodeKind::cache) return fmt::format("L{} cache", node.level);
  if (!node.name.empty()) return fmt::format("{} {}", kind, node.name);
  if (!node.bus_id.empty()) return fmt::format("{} {}", kind, node.bus_id);
  if (node.number >= 0) return fmt::format("{} {}", kind, node.number);
  return std::string(kind);
}

std::string port_name(const TopologyNode& port) {
  if (!port.port || !port.port->has_verbs) return port.name;
  return fmt::format("{}:{}", port.name, port.port->number);
}

}  // namespace gyre::topology
