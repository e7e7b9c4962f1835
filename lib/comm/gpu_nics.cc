#include "lib/comm/gpu_nics.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {

using topology::PathClass;

GpuNics::GpuNics(HostMachine& machine, FindNvml nvml, const Settings& settings, std::string bus_id)
    : machine_(machine),
      nvml_(std::move(nvml)),
      topology_file_(settings.topology_file),
      level_(settings.net_gdr_level),
      bus_id_(topology::kernel_bus_id(bus_id)) {}

const std::string& GpuNics::why_too_far(std::string_view port) {
  const auto known = known_.find(port);
  if (known != known_.end()) return known->second;
  return known_.emplace(port, judge(port)).first->second;
}

std::string GpuNics::judge(std::string_view port) const {
  if (level_ == "LOC") return "GYRE_NET_GDR_LEVEL=LOC turns it off";
  if (level_ == "SYS") return {};
  const PathClass path = path_to(port);
  if (path == PathClass::none)
    return fmt::format("nobody knows how far {} is from GPU {}, and GYRE_NET_GDR_LEVEL is {}", port,
                       bus_id_, level_);
  // A level is the name of the farthest path that it allows.
  for (auto farther = static_cast<int>(path); farther < static_cast<int>(PathClass::none);
       ++farther)
    if (path_class_name(static_cast<PathClass>(farther)) == level_) return {};
  return fmt::format("the path from GPU {} to {} is {}, and GYRE_NET_GDR_LEVEL is {}", bus_id_,
                     port, path_class_name(path), level_);
}

PathClass GpuNics::path_to(std::string_view port) const {
  const auto nvml = nvml_();
  const auto found = machine_.find(topology_file_, nvml.ok() ? *nvml : nullptr);
  if (!found.ok()) return PathClass::none;
  const topology::Topology& machine = **found;
  const int gpu = machine.find_bus_id(bus_id_);
  for (const int index : machine.all(topology::NodeKind::port)) {
    const topology::TopologyNode& node = machine.node(index);
    if (gpu >= 0 && node.port->has_verbs && topology::port_name(node) == port)
      return topology::EdgeTable(machine).path_between(gpu, index).kind;
  }
  return PathClass::none;
}

}  // namespace gyre::comm
