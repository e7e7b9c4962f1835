#include "lib/topology/describe.h"

#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <array>

namespace gyre::topology {
namespace {

// "33.6 MB", by powers of 1000.
std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> units = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < units.size(); ++unit) value /= 1000;
  return fmt::format("{:.3g} {}", value, units[unit]);
}

std::string speed_text(double gigabytes_per_s) {
  if (gigabytes_per_s <= 0) return "speed not known";
  return fmt::format("{:.3g} GB/s", gigabytes_per_s);
}

class Describer {
 public:
  explicit Describer(const Topology& topology)
      : topology_(topology), children_(topology.children()) {}

  std::string text() {
    add(0, 0);
    for (const TopologyLink& link : topology_.links) add_link(link);
    if (!topology_.missed.empty()) text_ += "not found out:\n";
    for (const std::string& one : topology_.missed) text_ += "  " + one + "\n";
    return std::move(text_);
  }

 private:
  void add(int index, int depth) {
    add_line(depth, node_line(topology_.node(index)));
    for (const UcxTransport& one : topology_.node(index).ucx) add_line(depth + 1, ucx_line(one));
    ProcessorSet numbers, processors;
    for (const int child : children_[static_cast<std::size_t>(index)]) {
      const TopologyNode& node = topology_.node(child);
      if (node.kind != NodeKind::core) continue;
      if (node.number >= 0 && node.number < ProcessorSet::max_processors)
        numbers.insert(node.number);
      processors.insert_all(node.processors);
    }
    if (!processors.empty())
      add_line(depth + 1, numbers == processors ? fmt::format("cores {}", numbers.list())
                                                : fmt::format("cores {} (processors {})",
                                                              numbers.list(), processors.list()));
    for (const int child : children_[static_cast<std::size_t>(index)])
      if (topology_.node(child).kind != NodeKind::core) add(child, depth + 1);
  }

  void add_line(int depth, std::string_view line) {
    text_ += fmt::format("{:{}}{}\n", "", 2 * depth, line);
  }

  static std::string node_line(const TopologyNode& node) {
    std::string line = node_text(node);
    switch (node.kind) {
      case NodeKind::host:
        return line + fmt::format(": processors {}", node.processors.list());
      case NodeKind::package:
      case NodeKind::numa_node:
        if (node.processor && !node.processor->name.empty())
          line += fmt::format(" ({})", node.processor->name);
        if (node.bytes > 0) line += ": " + bytes_text(node.bytes);
        return line;
      case NodeKind::cache:
        return line + ": " + bytes_text(node.bytes);
      case NodeKind::gpu:
        return line + gpu_text(node);
      case NodeKind::port:
        return line + port_text(node);
      case NodeKind::pci_switch:
      case NodeKind::nic:
        return node.bus_id.empty() ? line : line + ": " + speed_text(node.gigabytes_per_s);
      case NodeKind::core:
      case NodeKind::nv_switch:
        return line;
    }
    return line;
  }

  static std::string gpu_text(const TopologyNode& node) {
    std::string text = ": " + speed_text(node.gigabytes_per_s);
    if (!node.gpu) return text;
    if (node.gpu->ordinal >= 0) text = fmt::format(" (device {})", node.gpu->ordinal) + text;
    if (node.gpu->capability > 0) text += fmt::format(", sm_{}", node.gpu->capability);
    return text;
  }

  static std::string port_text(const TopologyNode& node) {
    constexpr std::array<const char*, 3> protocols = {"protocol not known", "Ethernet",
                                                      "InfiniBand"};
    const PortTraits port = node.port.value_or(PortTraits{});
    if (port.is_loopback) return ": loopback";
    std::string text = fmt::format(": {}, {}", protocols[static_cast<std::size_t>(port.protocol)],
                                   port.is_up ? "up" : "down");
    if (port.number != 1) text = fmt::format(", number {}", port.number) + text;
    if (port.has_verbs) text += ", verbs";
    if (port.is_virtual) text += ", virtual";
    const PortSpeed speed = port_speed(node);
    const bool is_known = speed.source != FigureSource::assumed;
    text += ", " + speed_text(is_known ? speed.gigabytes_per_s : 0);
    text += is_known ? source_suffix(speed.source) : "";
    if (port.mtu > 0) text += fmt::format(", MTU {}", port.mtu);
    return text;
  }

  static std::string ucx_line(const UcxTransport& one) {
    std::string text = fmt::format("UCX {} on {}: ", one.transport, one.device);
    text += speed_text(one.gigabytes_per_s());
    if (one.dedicated_gigabytes_per_s > 0) text += " for each process";
    if (one.latency_us > 0) text += fmt::format(", latency {:.3g} us", one.latency_us);
    if (one.latency_per_endpoint_us > 0)
      text += fmt::format(" and {:.3g} for each connection", one.latency_per_endpoint_us);
    if (one.overhead_us > 0) text += fmt::format(", overhead {:.3g} us", one.overhead_us);
    return text;
  }

  void add_link(const TopologyLink& link) {
    add_line(0, fmt::format("{} and {}: {} x {}, {}", node_text(topology_.node(link.from)),
                            node_text(topology_.node(link.to)), link.lanes,
                            link.kind == JointKind::nvlink ? "NVLink" : "C2C",
                            speed_text(link.gigabytes_per_s)));
  }

  const Topology& topology_;
  const std::vector<std::vector<int>> children_;
  std::string text_;
};

}  // namespace

std::string short_name(const TopologyNode& node) {
  if (node.kind == NodeKind::port) return node.name;
  if (node.kind == NodeKind::gpu && node.gpu && node.gpu->ordinal >= 0)
    return fmt::format("gpu{}", node.gpu->ordinal);
  if (node.number >= 0 && node.kind == NodeKind::numa_node)
    return fmt::format("numa{}", node.number);
  if (node.number >= 0 && node.kind == NodeKind::core) return fmt::format("core{}", node.number);
  return node.bus_id;
}

std::string describe(const Topology& topology) { return Describer(topology).text(); }

}  // namespace gyre::topology
