// Writes NCCL's topology files: NUMA nodes with the devices below them.
#include "lib/topology/nccl_xml.h"
#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace gyre::topology {
namespace {

class NcclWriter {
 public:
  explicit NcclWriter(const Topology& topology)
      : topology_(topology), children_(topology.children()) {}

  XmlElement write() {
    XmlElement root = element("system");
    root.set("version", "1");
    if (!topology_.node(0).name.empty()) root.set("name", topology_.node(0).name);
    for (const int numa : topology_.all(NodeKind::numa_node)) root.children.push_back(cpu(numa));
    // Devices that lie in no NUMA node stand with the first.
    if (root.children.empty())
      root.children.push_back(cpu(0));
    else
      add_devices(root.children.front(), 0);
    return root;
  }

 private:
  static XmlElement element(std::string name) {
    XmlElement made;
    made.name = std::move(name);
    return made;
  }

  XmlElement cpu(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = element("cpu");
    made.set("numaid", fmt::format("{}", node.number));
    made.set("affinity", node.processors.nccl_mask());
    made.set("arch", "x86_64");
    const int package = topology_.above(index, NodeKind::package);
    const auto& processor = package >= 0 ? topology_.node(package).processor : node.processor;
    if (processor) {
      made.set("vendor", processor->vendor);
      made.set("familyid", fmt::format("{}", processor->family));
      made.set("modelid", fmt::format("{}", processor->model));
    }
    add_devices(made, index);
    return made;
  }

  // Those below `parent`, except for what lies in its NUMA nodes.
  void add_devices(XmlElement& into, int parent) {
    for (const int child : children_[static_cast<std::size_t>(parent)]) {
      const NodeKind kind = topology_.node(child).kind;
      if (kind == NodeKind::pci_switch) into.children.push_back(pci_switch(child));
      if (kind == NodeKind::gpu) into.children.push_back(gpu(child));
      if (kind == NodeKind::nic) into.children.push_back(nic(child));
      // Packages, caches: what lies in them is as near.
      if (kind == NodeKind::package || kind == NodeKind::cache) add_devices(into, child);
    }
  }

  XmlElement pci(int index, std::string pci_class) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = element("pci");
    made.set("busid", node.bus_id);
    made.set("class", std::move(pci_class));
    const auto [rate, width] = rate_and_width(node.gigabytes_per_s);
    made.set("link_speed", rate > 0 ? fmt::format("{:.1f} GT/s PCIe", rate) : "");
    made.set("link_width", fmt::format("{}", width));
    return made;
  }

  XmlElement pci_switch(int index) {
    XmlElement made = pci(index, "0x060400");
    add_devices(made, index);
    return made;
  }

  XmlElement gpu(int index) {
    const GpuTraits traits = topology_.node(index).gpu.value_or(GpuTraits{});
    XmlElement inner = element("gpu");
    inner.set("dev", fmt::format("{}", traits.ordinal));
    inner.set("sm", fmt::format("{}", traits.capability));
    inner.set("gdr", traits.nic_reaches ? "1" : "0");
    for (const TopologyLink& link : topology_.links) {
      if (link.from != index && link.to != index) continue;
      inner.children.push_back(joint(link, link.from == index ? link.to : link.from));
    }
    XmlElement made = pci(index, "0x030200");
    made.children.push_back(std::move(inner));
    return made;
  }

  XmlElement joint(const TopologyLink& link, int target) {
    if (link.kind == JointKind::c2c) {
      XmlElement made = element("c2c");
      made.set("bw", fmt::format("{:.0f}", link.gigabytes_per_s * 1000 / link.lanes));
      made.set("count", fmt::format("{}", link.lanes));
      return made;
    }
    const bool to_switch = topology_.node(target).kind == NodeKind::nv_switch;
    XmlElement made = element("nvlink");
    made.set("target", to_switch ? "ffff:ff:ff.0" : topology_.node(target).bus_id);
    made.set("count", fmt::format("{}", link.lanes));
    made.set("tclass", to_switch ? "0x068000" : "0x030200");
    return made;
  }

  XmlElement nic(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement inner = element("nic");
    for (const int child : children_[static_cast<std::size_t>(index)])
      if (topology_.node(child).kind == NodeKind::port)
        inner.children.push_back(net(topology_.node(child)));
    if (node.bus_id.empty()) return inner;
    XmlElement made = pci(index, "0x020000");
    made.children.push_back(std::move(inner));
    return made;
  }

  XmlElement net(const TopologyNode& node) {
    const PortTraits traits = node.port.value_or(PortTraits{});
    XmlElement made = element("net");
    made.set("name", node.name);
    made.set("dev", fmt::format("{}", ports_++));
    const PortSpeed speed = port_speed(node);
    const double known = speed.source == FigureSource::assumed ? 0 : speed.gigabytes_per_s;
    made.set("speed", fmt::format("{:.0f}", known * megabits_per_gigabyte));
    made.set("port", fmt::format("{}", traits.number));
    made.set("guid", traits.guid.empty() ? "0x0" : traits.guid);
    made.set("gdr", traits.nic_reaches_gpus ? "1" : "0");
    return made;
  }

  // The rate and width that carry so much; 16 lanes are likeliest.
  static std::pair<double, int> rate_and_width(double gigabytes_per_s) {
    constexpr std::array<double, 6> rates = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
    constexpr std::array<int, 6> widths = {16, 8, 4, 2, 1, 32};
    for (const int width : widths)
      for (const double rate : rates)
        if (std::abs(pci_gigabytes_per_s(rate, width) - gigabytes_per_s) < 0.005 * gigabytes_per_s)
          return {rate, width};
    return {0, 0};
  }

  const Topology& topology_;
  const std::vector<std::vector<int>> children_;
  int ports_ = 0;
};

}  // namespace

std::string write_nccl_xml(const Topology& topology) {
  return print_xml(NcclWriter(topology).write());
}

}  // namespace gyre::topology
