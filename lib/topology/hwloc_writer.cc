// Writes hwloc's XML, with the sets and indexes that hwloc wants of every object.
#include "lib/topology/gyre_info.h"
#include "lib/topology/hwloc_xml.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::topology {
namespace {

constexpr std::string_view heading =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";

// What lies where, without the NUMA nodes: what is in one of those stands beside it there.
class HwlocWriter {
 public:
  explicit HwlocWriter(const Topology& topology)
      : topology_(topology),
        children_(topology.children()),
        numa_nodes_(topology.all(NodeKind::numa_node)) {}

  XmlElement write() {
    XmlElement root;
    root.name = "topology";
    root.set("version", "2.0");
    root.children.push_back(object(0));
    XmlElement& machine = root.children.front();
    const LinkEnds ends = link_ends(topology_);
    for (const TopologyLink& link : topology_.links)
      machine.children.push_back(info(link_info, link_words(ends, link)));
    return root;
  }

 private:
  static XmlElement info(std::string_view name, std::string_view value) {
    XmlElement made;
    made.name = "info";
    made.set("name", std::string(name));
    made.set("value", std::string(value));
    return made;
  }

  XmlElement typed(std::string_view type) {
    XmlElement made;
    made.name = "object";
    made.set("type", std::string(type));
    made.set("gp_index", fmt::format("{}", ++objects_));
    return made;
  }

  // A place for processors: with the sets that hwloc wants of each.
  XmlElement place(std::string_view type, const ProcessorSet& processors, int number) {
    XmlElement made = typed(type);
    if (number >= 0) made.set("os_index", fmt::format("{}", number));
    for (const char* key : {"cpuset", "complete_cpuset"}) made.set(key, processors.hwloc_mask());
    for (const char* key : {"nodeset", "complete_nodeset"})
      made.set(key, nodes_near(processors).hwloc_mask());
    return made;
  }

  ProcessorSet nodes_near(const ProcessorSet& processors) const {
    ProcessorSet near;
    for (const int numa : numa_nodes_) {
      const TopologyNode& node = topology_.node(numa);
      if (node.number >= 0 && node.processors.intersects(processors)) near.insert(node.number);
    }
    return near;
  }

  XmlElement object(int index) {
    const TopologyNode& node = topology_.node(index);
    switch (node.kind) {
      case NodeKind::host:
        return host(index);
      case NodeKind::package:
        return package(index);
      case NodeKind::cache:
        return cache(index);
      case NodeKind::core:
        return core(node);
      case NodeKind::pci_switch:
        return pci_switch(index);
      case NodeKind::gpu:
        return gpu(node);
      case NodeKind::nic:
        return nic(index);
      case NodeKind::port:
        return port(node);
      case NodeKind::nv_switch:
        return nv_switch(node);
      case NodeKind::numa_node:
        break;  // with its parent: see add_children
    }
    return typed("Misc");
  }

  XmlElement host(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = place("Machine", node.processors, 0);
    made.set("allowed_cpuset", node.processors.hwloc_mask());
    made.set("allowed_nodeset", nodes_near(node.processors).hwloc_mask());
    if (!node.name.empty()) made.children.push_back(info("HostName", node.name));
    add_ucx(made, node);
    add_children(made, index);
    return made;
  }

  XmlElement package(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = place("Package", node.processors, node.number);
    if (node.processor) add_processor(made, *node.processor);
    add_children(made, index);
    return made;
  }

  static void add_processor(XmlElement& into, const ProcessorModel& processor) {
    into.children.push_back(info("CPUVendor", processor.vendor));
    into.children.push_back(info("CPUFamilyNumber", fmt::format("{}", processor.family)));
    into.children.push_back(info("CPUModelNumber", fmt::format("{}", processor.model)));
    into.children.push_back(info("CPUModel", processor.name));
  }

  XmlElement cache(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = place(fmt::format("L{}Cache", node.level), node.processors, -1);
    made.set("cache_size", fmt::format("{}", node.bytes));
    made.set("depth", fmt::format("{}", node.level));
    made.set("cache_linesize", "64");
    made.set("cache_associativity", "0");
    made.set("cache_type", "0");
    add_children(made, index);
    return made;
  }

  XmlElement core(const TopologyNode& node) {
    XmlElement made = place("Core", node.processors, node.number);
    for (const int processor : node.processors.numbers()) {
      ProcessorSet one;
      one.insert(processor);
      made.children.push_back(place("PU", one, processor));
    }
    return made;
  }

  XmlElement numa_node(const TopologyNode& node) {
    XmlElement made = typed("NUMANode");
    made.set("os_index", fmt::format("{}", node.number));
    for (const char* key : {"cpuset", "complete_cpuset"})
      made.set(key, node.processors.hwloc_mask());
    ProcessorSet itself;
    if (node.number >= 0) itself.insert(node.number);
    for (const char* key : {"nodeset", "complete_nodeset"}) made.set(key, itself.hwloc_mask());
    made.set("local_memory", fmt::format("{}", node.bytes));
    if (node.processor) add_processor(made, *node.processor);
    return made;
  }

  // NUMA nodes first. Where a place has several, each goes into a group with what lies in it.
  void add_children(XmlElement& into, int index) {
    const auto& children = children_[static_cast<std::size_t>(index)];
    const auto is_numa = [&](int child) {
      return topology_.node(child).kind == NodeKind::numa_node;
    };
    const auto takes_in = [&](int child) {
      return is_numa(child) && !topology_.node(child).processors.empty();
    };
    const bool grouped = std::ranges::count_if(children, takes_in) > 1 ||
                         topology_.node(index).kind == NodeKind::numa_node;
    for (const int child : children) {
      if (!is_numa(child)) {
        into.children.push_back(object(child));
        continue;
      }
      const TopologyNode& node = topology_.node(child);
      if (!grouped || !takes_in(child)) {
        into.children.push_back(numa_node(node));
        add_children(into, child);
        continue;
      }
      XmlElement group = place("Group", node.processors, -1);
      group.set("kind", "0");
      group.set("subkind", "0");
      group.children.push_back(numa_node(node));
      add_children(group, child);
      into.children.push_back(std::move(group));
    }
  }

  void set_bus(XmlElement& element, const TopologyNode& node, std::string_view type) {
    element.set("pci_busid", node.bus_id);
    element.set("pci_type", std::string(type));
    element.set("pci_link_speed", fmt::format("{}", node.gigabytes_per_s));
  }

  XmlElement pci_switch(int index) {
    const TopologyNode& node = topology_.node(index);
    XmlElement made = typed("Bridge");
    made.set("bridge_type", "1-1");
    made.set("depth", "0");
    made.set("bridge_pci", "0000:[00-00]");
    set_bus(made, node, "0604 [0000:0000] [0000:0000] 00");
    made.children.push_back(info(pci_switch_info, "1"));
    add_children(made, index);
    return made;
  }

  XmlElement gpu(const TopologyNode& node) {
    XmlElement made = typed("PCIDev");
    set_bus(made, node, "0302 [10de:0000] [0000:0000] 00");
    made.children.push_back(info(gpu_info, gpu_words(node.gpu.value_or(GpuTraits{}))));
    return made;
  }

  // One without a place on the bus is its port alone.
  XmlElement nic(int index) {
    const TopologyNode& node = topology_.node(index);
    const auto& ports = children_[static_cast<std::size_t>(index)];
    if (node.bus_id.empty() && ports.size() == 1) return port(topology_.node(ports.front()));
    XmlElement made = typed("PCIDev");
    set_bus(made, node, "0200 [0000:0000] [0000:0000] 00");
    for (const int child : ports) made.children.push_back(port(topology_.node(child)));
    return made;
  }

  XmlElement port(const TopologyNode& node) {
    XmlElement made = typed("OSDev");
    made.set("name", node.name);
    made.set("osdev_type", node.port && node.port->has_verbs ? "3" : "2");
    made.children.push_back(info(port_info, port_words(node)));
    add_ucx(made, node);
    return made;
  }

  static void add_ucx(XmlElement& into, const TopologyNode& node) {
    for (const UcxTransport& one : node.ucx)
      into.children.push_back(info(ucx_info, ucx_words(one)));
  }

  XmlElement nv_switch(const TopologyNode& node) {
    if (node.bus_id.empty()) {
      XmlElement made = typed("Misc");
      made.set("name", "NVSwitch");
      made.children.push_back(info(nv_switch_info, "1"));
      return made;
    }
    XmlElement made = typed("PCIDev");
    set_bus(made, node, "0680 [10de:0000] [0000:0000] 00");
    return made;
  }

  const Topology& topology_;
  const std::vector<std::vector<int>> children_;
  const std::vector<int> numa_nodes_;
  int objects_ = 0;
};

}  // namespace

std::string write_hwloc_xml(const Topology& topology) {
  return print_xml(HwlocWriter(topology).write(), heading);
}

}  // namespace gyre::topology
