#include "lib/topology/transport_path.h"

#include "lib/topology/routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace gyre::topology {
namespace {

// The narrowest part so far.
class Narrowest {
 public:
  void pass(double gigabytes_per_s, FigureSource source) {
    if (gigabytes_per_s >= width_) return;
    width_ = gigabytes_per_s;
    source_ = source;
  }
  void pass(const EdgeTable& table, const DevicePath& path) {
    for (const int edge : path.edges) {
      const EdgeTable::Edge& part = table.edges()[static_cast<std::size_t>(edge)];
      pass(part.gigabytes_per_s, part.is_guessed ? FigureSource::assumed : FigureSource::known);
    }
  }
  double width() const { return width_; }
  TransportPath to_path(std::string text) const {
    if (width_ >= local_gigabytes_per_s) return {.exists = true, .text = std::move(text)};
    return {true, width_, source_, std::move(text)};
  }

 private:
  double width_ = local_gigabytes_per_s;
  FigureSource source_ = FigureSource::known;
};

TransportPath no_path(std::string why) { return {.text = std::move(why)}; }

// Where the memory of a rank's host is that its bytes pass.
int memory_near(const Topology& machine, int node) {
  for (const NodeKind kind : {NodeKind::numa_node, NodeKind::package})
    if (const int found = machine.above(node, kind); found >= 0) return found;
  return 0;
}

TransportPath path_by_gpus(const RankLocation& from, const RankLocation& to) {
  for (const RankLocation* end : {&from, &to})
    if (const TopologyNode& node = end->machine->node(end->node); node.kind != NodeKind::gpu)
      return no_path(node_text(node) + " is not a GPU");
  const EdgeTable table(*from.machine);
  const DevicePath path = table.path_between(from.node, to.node);
  if (path.kind == PathClass::none) return no_path("no path between the GPUs is known");
  Narrowest narrowest;
  narrowest.pass(table, path);
  return narrowest.to_path(std::string(path_class_name(path.kind)));
}

// What cores share as a cache does not go through memory; what GPUs store does.
TransportPath path_by_host_memory(const RankLocation& from, const RankLocation& to) {
  const EdgeTable table(*from.machine);
  const TopologyNode& here = from.machine->node(from.node);
  Narrowest narrowest;
  if (here.kind == NodeKind::gpu) {
    const int memory = memory_near(*from.machine, from.node);
    narrowest.pass(table, table.path_between(from.node, memory));
    narrowest.pass(table, table.path_between(memory, to.node));
    return narrowest.to_path("by the memory of " + node_text(from.machine->node(memory)));
  }
  if (from.node == to.node && here.kind != NodeKind::core)
    return narrowest.to_path("within " + node_text(here));
  const DevicePath path = table.path_between(from.node, to.node);
  narrowest.pass(table, path);
  return narrowest.to_path(std::string(path_class_name(path.kind)));
}

// The port that carries most from a rank's memory to other hosts.
struct BestPort {
  int port = -1;
  Narrowest narrowest;
};
BestPort best_port(const RankLocation& place, const std::vector<int>& ports) {
  BestPort best;
  const EdgeTable table(*place.machine);
  const int memory = memory_near(*place.machine, place.node);
  for (const int port : ports) {
    const PortSpeed speed = port_speed(place.machine->node(port));
    Narrowest narrowest;
    narrowest.pass(speed.gigabytes_per_s, speed.source);
    narrowest.pass(table, table.path_between(place.node, memory));
    narrowest.pass(table, table.path_between(memory, port));
    if (best.port < 0 || narrowest.width() > best.narrowest.width()) best = {port, narrowest};
  }
  return best;
}

// Of one machine, to other hosts; or why there are none.
struct LeavingPorts {
  std::vector<int> ports;
  std::string absence;
};

LeavingPorts socket_ports(const Topology& machine) {
  return {usable_ports(machine),
          "no port of " + node_text(machine.node(0)) + " leads to other hosts"};
}

// Software RoCE has no device behind it, and counts.
LeavingPorts verbs_ports(const Topology& machine) {
  LeavingPorts found{{}, node_text(machine.node(0)) + " has no RDMA port"};
  for (const int port : machine.all(NodeKind::port)) {
    const TopologyNode& node = machine.node(port);
    if (!node.port->has_verbs) continue;
    if (node.port->is_up)
      found.ports.push_back(port);
    else
      found.absence =
          fmt::format("RDMA port {} of {} is down", port_name(node), node_text(machine.node(0)));
  }
  return found;
}

// UCX takes the best of both. What it says of a port's speed counts where the kernel says nothing.
LeavingPorts ucx_ports(const Topology& machine) {
  LeavingPorts found = socket_ports(machine);
  for (const int port : verbs_ports(machine).ports)
    if (std::ranges::count(found.ports, port) == 0) found.ports.push_back(port);
  return found;
}

TransportPath path_by_ports(const RankLocation& from, const RankLocation& to,
                            LeavingPorts (*ports_of)(const Topology&)) {
  std::string text;
  std::optional<Narrowest> narrowest;
  for (const RankLocation* end : {&from, &to}) {
    if (end->machine == nullptr) continue;
    const LeavingPorts leaving = ports_of(*end->machine);
    const BestPort best = best_port(*end, leaving.ports);
    if (best.port < 0) return no_path(leaving.absence);
    text += (text.empty() ? "" : " to ") + end->machine->node(best.port).name;
    if (!narrowest || best.narrowest.width() < narrowest->width()) narrowest = best.narrowest;
  }
  return narrowest ? narrowest->to_path("by " + text)
                   : TransportPath{.exists = true, .text = "by the network"};
}

}  // namespace

TransportPath find_path(const RankLocation& from, const RankLocation& to, Medium medium) {
  const bool is_one_host = from.host == to.host;
  if (medium == Medium::ucx)
    return is_one_host ? TransportPath{.exists = true, .text = "within the host"}
                       : path_by_ports(from, to, ucx_ports);
  if (medium == Medium::sockets)
    return is_one_host ? TransportPath{.exists = true, .text = "over loopback"}
                       : path_by_ports(from, to, socket_ports);
  if (medium == Medium::verbs) return path_by_ports(from, to, verbs_ports);
  if (medium == Medium::own_memory)
    return is_one_host && from.node == to.node ? TransportPath{.exists = true, .text = "own memory"}
                                               : no_path("another rank");
  if (!is_one_host) return no_path("another host");
  if (from.machine == nullptr) return {.exists = true, .text = "on one host"};
  return medium == Medium::gpu_memory ? path_by_gpus(from, to) : path_by_host_memory(from, to);
}

std::string path_text(const TransportPath& path) {
  return path.exists ? path.text + ", " + figure_text(path) : path.text;
}

std::string figure_text(const TransportPath& path) {
  if (path.gigabytes_per_s <= 0) return "no figure";
  return fmt::format("{:.3g} GB/s{}", path.gigabytes_per_s, source_suffix(path.source));
}

}  // namespace gyre::topology
