// Reads hwloc's XML: which of its objects are nodes here, and what lies in what.
#include "lib/topology/gyre_info.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

namespace gyre::topology {
namespace {

// Values of osdev_type and of PCI classes, as hwloc's XML has them.
constexpr std::string_view network_device = "2", verbs_device = "3";
constexpr std::string_view display_class = "03", accelerator_class = "12", network_class = "02",
                           nv_switch_class = "0680", nvidia = "[10de:";

std::string_view info(const XmlElement& element, std::string_view name) {
  for (const XmlElement& child : element.children)
    if (child.name == "info" && child.attribute("name") == name) return child.attribute("value");
  return {};
}

bool is_object(const XmlElement& element, std::string_view type) {
  return element.name == "object" && element.attribute("type") == type;
}

class HwlocReader {
 public:
  Result<Topology> read(const XmlElement& root) {
    const std::string_view version = root.attribute("version");
    if (!version.starts_with("2."))
      return root.wrong(
          fmt::format("version \"{}\" of hwloc's XML; 2 is known (lstopo of hwloc 2 "
                      "converts: lstopo -i FILE --of xml)",
                      version.substr(0, 20)));
    const auto machine = std::ranges::find_if(
        root.children, [](const auto& one) { return is_object(one, "Machine"); });
    if (machine == root.children.end()) return root.wrong("it has no object of type Machine");
    GYRE_TRY(read_object(*machine, -1));
    const LinkEnds ends = link_ends(topology_);
    for (const XmlElement& child : machine->children) {
      if (child.name != "info" || child.attribute("name") != link_info) continue;
      GYRE_ASSIGN(const TopologyLink link, read_link_words(child.attribute("value"), child, ends));
      topology_.links.push_back(link);
    }
    std::ranges::sort(topology_.links, {},
                      [](const TopologyLink& link) { return std::pair(link.from, link.to); });
    GYRE_TRY(check(topology_));
    return std::move(topology_);
  }

 private:
  // An object and what lies in it; what is of no kind that matters passes its children on.
  Status read_object(const XmlElement& element, int parent) {
    if (topology_.nodes.size() >= max_nodes)
      return element.wrong(fmt::format("the file has more than {} parts", max_nodes));
    const std::string_view type = element.attribute("type");
    if (type == "Machine") return read_place(element, NodeKind::host, parent);
    if (type == "Package") return read_place(element, NodeKind::package, parent);
    if (type == "NUMANode" || type == "MemCache") return {};  // with its parent: read_children
    // Where nobody knows the cores, each processor (PU) counts as one.
    if (type == "Core" || type == "PU") return read_place(element, NodeKind::core, parent);
    if (is_shared_cache(element)) return read_place(element, NodeKind::cache, parent);
    if (type == "Bridge") return read_bridge(element, parent);
    if (type == "PCIDev") return read_pci(element, parent);
    if (type == "OSDev") return read_device(element, parent);
    if (type == "Misc") return read_misc(element, parent);
    return read_children(element, parent);
  }

  // L3 and beyond; L2 if several cores share it.
  static bool is_shared_cache(const XmlElement& element) {
    const std::string_view type = element.attribute("type");
    if (type == "L3Cache" || type == "L4Cache" || type == "L5Cache") return true;
    return type == "L2Cache" && count_cores(element) > 1;
  }

  static int count_cores(const XmlElement& element) {
    if (is_object(element, "Core") || is_object(element, "PU")) return 1;
    int count = 0;
    for (const XmlElement& child : element.children) count += count_cores(child);
    return count;
  }

  Status read_place(const XmlElement& element, NodeKind kind, int parent) {
    TopologyNode node;
    node.kind = kind;
    node.parent = parent;
    GYRE_ASSIGN(const std::int64_t number, element.integer("os_index", -1, -1, 1 << 20));
    if (kind != NodeKind::host && kind != NodeKind::cache) node.number = static_cast<int>(number);
    Result<ProcessorSet> processors = ProcessorSet::parse_mask(element.attribute("cpuset"));
    if (!processors.ok()) return element.wrong(processors.status().message());
    node.processors = std::move(processors).value();
    if (kind == NodeKind::host) {
      node.name = info(element, "HostName");
      GYRE_TRY(read_ucx(element, node));
    }
    if (kind == NodeKind::package) GYRE_TRY(read_processor(element, node));
    if (kind == NodeKind::cache) {
      GYRE_ASSIGN(const std::int64_t level, element.integer("depth", 0, 2, 5));
      GYRE_ASSIGN(const std::int64_t bytes, element.integer("cache_size", 0, 0, INT64_MAX));
      node.level = static_cast<int>(level);
      node.bytes = static_cast<std::uint64_t>(bytes);
    }
    const int index = topology_.add(std::move(node));
    return kind == NodeKind::core ? Status() : read_children(element, index);
  }

  static Status read_ucx(const XmlElement& element, TopologyNode& node) {
    for (const XmlElement& child : element.children) {
      if (child.name != "info" || child.attribute("name") != ucx_info) continue;
      GYRE_ASSIGN(UcxTransport transport, read_ucx_words(child.attribute("value"), child));
      node.ucx.push_back(std::move(transport));
    }
    return {};
  }

  // hwloc has it with packages; of NUMA nodes it is Gyre's, where nobody knows the packages.
  static Status read_processor(const XmlElement& element, TopologyNode& node) {
    if (info(element, "CPUVendor").empty()) return {};
    XmlElement numbers;
    numbers.name = element.name;
    numbers.line = element.line;
    for (const char* name : {"CPUFamilyNumber", "CPUModelNumber"})
      if (const std::string_view value = info(element, name); !value.empty())
        numbers.set(name, std::string(value));
    GYRE_ASSIGN(const std::int64_t family, numbers.integer("CPUFamilyNumber", 0, -1, 65536));
    GYRE_ASSIGN(const std::int64_t model, numbers.integer("CPUModelNumber", 0, -1, 65536));
    node.processor =
        ProcessorModel{std::string(info(element, "CPUVendor")), static_cast<int>(family),
                       static_cast<int>(model), std::string(info(element, "CPUModel"))};
    return {};
  }

  // A NUMA node stands beside what it is near. The first with processors takes that in, so that
  // what is near lies in it; others (memory of another kind) lie beside.
  Status read_children(const XmlElement& element, int parent) {
    int inner = parent;
    GYRE_TRY(read_numa_nodes(element, parent, inner));
    for (const XmlElement& child : element.children)
      if (child.name == "object") GYRE_TRY(read_object(child, inner));
    return {};
  }

  Status read_numa_nodes(const XmlElement& element, int parent, int& inner) {
    for (const XmlElement& child : element.children) {
      // A cache on the memory's side, with the NUMA node in it.
      if (is_object(child, "MemCache")) GYRE_TRY(read_numa_nodes(child, parent, inner));
      if (!is_object(child, "NUMANode")) continue;
      TopologyNode node;
      node.kind = NodeKind::numa_node;
      node.parent = parent;
      GYRE_ASSIGN(const std::int64_t number, child.integer("os_index", -1, -1, 1 << 20));
      GYRE_ASSIGN(const std::int64_t bytes, child.integer("local_memory", 0, 0, INT64_MAX));
      node.number = static_cast<int>(number);
      node.bytes = static_cast<std::uint64_t>(bytes);
      GYRE_TRY(read_processor(child, node));
      const bool takes_in = inner == parent;
      if (takes_in) {
        Result<ProcessorSet> processors = ProcessorSet::parse_mask(child.attribute("cpuset"));
        if (!processors.ok()) return child.wrong(processors.status().message());
        node.processors = std::move(processors).value();
      }
      const bool has_processors = !node.processors.empty();
      const int index = topology_.add(std::move(node));
      if (takes_in && has_processors) inner = index;
    }
    return {};
  }

  // A bridge to a single thing is a cable; one to several is a switch.
  Status read_bridge(const XmlElement& element, int parent) {
    const auto is_device = [](const XmlElement& one) { return one.name == "object"; };
    const bool is_switch = std::ranges::count_if(element.children, is_device) > 1 ||
                           !info(element, pci_switch_info).empty();
    if (element.attribute("bridge_type") != "1-1" || !is_switch)
      return read_children(element, parent);
    TopologyNode node;
    node.kind = NodeKind::pci_switch;
    node.parent = parent;
    GYRE_TRY(read_bus(element, node));
    return read_children(element, topology_.add(std::move(node)));
  }

  Status read_bus(const XmlElement& element, TopologyNode& node) {
    node.bus_id = element.attribute("pci_busid");
    if (node.bus_id.empty()) return element.wrong("a PCI device without a pci_busid");
    if (!bus_ids_.insert(node.bus_id).second)
      return element.wrong(fmt::format("pci_busid {} is there twice", node.bus_id));
    GYRE_ASSIGN(node.gigabytes_per_s, element.figure("pci_link_speed", 0));
    return {};
  }

  Status read_pci(const XmlElement& element, int parent) {
    TopologyNode node;
    node.parent = parent;
    GYRE_TRY(read_bus(element, node));
    const std::string_view type = element.attribute("pci_type");
    const bool by_nvidia = type.find(nvidia) != type.npos;
    const auto has = [&](std::string_view kind) {
      return std::ranges::any_of(element.children, [&](const XmlElement& one) {
        return is_object(one, "OSDev") && one.attribute("osdev_type") == kind;
      });
    };
    if ((by_nvidia && type.starts_with(display_class)) || type.starts_with(accelerator_class)) {
      node.kind = NodeKind::gpu;
      GYRE_ASSIGN(node.gpu, read_gpu_words(info(element, gpu_info), element));
      topology_.add(std::move(node));
      return {};
    }
    if (by_nvidia && type.starts_with(nv_switch_class)) {
      node.kind = NodeKind::nv_switch;
      topology_.add(std::move(node));
      return {};
    }
    if (!type.starts_with(network_class) && !has(network_device) && !has(verbs_device)) return {};
    node.kind = NodeKind::nic;
    return read_children(element, topology_.add(std::move(node)));
  }

  // A device without a place on the bus is a NIC of its own, unless it is none at all.
  Status read_device(const XmlElement& element, int parent) {
    const std::string_view type = element.attribute("osdev_type");
    if (type != network_device && type != verbs_device) return {};
    TopologyNode port;
    port.kind = NodeKind::port;
    port.name = element.attribute("name");
    if (port.name.empty()) return element.wrong("a network device without a name");
    if (const std::string_view words = info(element, port_info); !words.empty()) {
      GYRE_TRY(read_port_words(words, element, port));
    } else {
      port.port.emplace();
      port.port->has_verbs = type == verbs_device;
      if (type == network_device) port.port->protocol = PortProtocol::ethernet;
      if (port.port->has_verbs) read_verbs_infos(element, *port.port);
    }
    GYRE_TRY(read_ucx(element, port));
    port.parent = port.port->is_virtual ? 0 : parent;
    if (topology_.node(port.parent).kind != NodeKind::nic && !port.port->is_virtual) {
      TopologyNode nic;
      nic.kind = NodeKind::nic;
      nic.parent = parent;
      port.parent = topology_.add(std::move(nic));
    }
    topology_.add(std::move(port));
    return {};
  }

  // What hwloc's own plugin for verbs knows of the first port.
  static void read_verbs_infos(const XmlElement& element, PortTraits& port) {
    constexpr std::string_view active = "4";  // ibv_port_state
    const std::string_view state = info(element, "Port1State");
    port.is_up = state.empty() || state == active;
    port.guid = info(element, "NodeGUID");
  }

  // NVSwitches that the bus does not show.
  Status read_misc(const XmlElement& element, int parent) {
    if (info(element, nv_switch_info).empty()) return {};
    TopologyNode node;
    node.kind = NodeKind::nv_switch;
    node.parent = parent;
    topology_.add(std::move(node));
    return {};
  }

  Topology topology_;
  std::set<std::string> bus_ids_;
};

}  // namespace

bool is_hwloc_xml(const XmlElement& root) { return root.name == "topology"; }

Result<Topology> read_hwloc_xml(const XmlElement& root) {
  if (!is_hwloc_xml(root)) return root.wrong("hwloc's topology files begin with <topology>");
  return HwlocReader().read(root);
}

}  // namespace gyre::topology
