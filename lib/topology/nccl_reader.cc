// Reads NCCL's topology files. NVLinks are joined at the end, when all GPUs are known.
#include "lib/topology/nccl_xml.h"
#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace gyre::topology {
namespace {

// Classes of PCI devices, as far as they matter (PCI Code and ID Assignment 1.11).
constexpr std::string_view bridge_class = "0x0604", gpu_class = "0x03", switch_class = "0x0680";

// "16.0 GT/s PCIe": the figure in front.
double rate_of(std::string_view text) {
  double rate = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), rate);
  return rate >= 0 && rate < 1000 ? rate : 0;
}

class NcclReader {
 public:
  Result<Topology> read(const XmlElement& root) {
    GYRE_ASSIGN(const std::int64_t version, root.integer("version", 1, 0, 1'000'000));
    if (version != 1)
      return root.wrong(fmt::format("version {} of NCCL's format; 1 is known", version));
    TopologyNode host;
    host.name = root.attribute("name");
    topology_.add(std::move(host));
    for (const XmlElement& child : root.children)
      if (child.name == "cpu") GYRE_TRY(read_cpu(child));
    GYRE_TRY(join_all());
    GYRE_TRY(check(topology_));
    return std::move(topology_);
  }

 private:
  struct PendingNvLink {
    const XmlElement* element;
    int gpu;
    std::string target, target_class;
    int lanes;
  };

  Status read_cpu(const XmlElement& element) {
    TopologyNode node;
    node.kind = NodeKind::numa_node;
    node.parent = 0;
    GYRE_ASSIGN(const std::int64_t number, element.integer("numaid", -1, -1, 1 << 20));
    node.number = static_cast<int>(number);
    if (element.has("affinity")) {
      Result<ProcessorSet> processors = ProcessorSet::parse_mask(element.attribute("affinity"));
      if (!processors.ok()) return element.wrong(processors.status().message());
      node.processors = std::move(processors).value();
    }
    topology_.nodes[0].processors.insert_all(node.processors);
    GYRE_ASSIGN(node.processor, read_processor(element));
    const int index = topology_.add(std::move(node));
    return read_devices(element, index);
  }

  static Result<ProcessorModel> read_processor(const XmlElement& element) {
    ProcessorModel processor;
    processor.vendor = element.attribute("vendor");
    GYRE_ASSIGN(const std::int64_t family, element.integer("familyid", 0, -1, 4096));
    GYRE_ASSIGN(const std::int64_t model, element.integer("modelid", 0, -1, 65536));
    processor.family = static_cast<int>(family);
    processor.model = static_cast<int>(model);
    return processor;
  }

  Status read_devices(const XmlElement& element, int parent) {
    for (const XmlElement& child : element.children) {
      if (child.name == "pci") GYRE_TRY(read_pci(child, parent));
      if (child.name == "nic") GYRE_TRY(read_nic(child, parent, nullptr));
    }
    return {};
  }

  Status read_pci(const XmlElement& element, int parent) {
    if (topology_.nodes.size() >= max_nodes)
      return element.wrong(fmt::format("the file has more than {} parts", max_nodes));
    TopologyNode node;
    node.parent = parent;
    node.bus_id = kernel_bus_id(element.attribute("busid"));
    if (node.bus_id.empty()) return element.wrong("a PCI device without a busid");
    if (!bus_ids_.insert(node.bus_id).second)
      return element.wrong(fmt::format("busid {} is there twice", node.bus_id));
    GYRE_ASSIGN(const std::int64_t width, element.integer("link_width", 0, 0, 64));
    node.gigabytes_per_s =
        pci_gigabytes_per_s(rate_of(element.attribute("link_speed")), static_cast<int>(width));
    const std::string_view pci_class = element.attribute("class");
    const auto child = [&](std::string_view name) {
      const auto found = std::ranges::find(element.children, name, &XmlElement::name);
      return found == element.children.end() ? nullptr : &*found;
    };
    if (const XmlElement* const gpu = child("gpu"); gpu != nullptr)
      return read_gpu(*gpu, std::move(node));
    if (const XmlElement* const nic = child("nic"); nic != nullptr)
      return read_nic(*nic, parent, &node);
    if (pci_class.starts_with(bridge_class)) {
      node.kind = NodeKind::pci_switch;
      return read_devices(element, topology_.add(std::move(node)));
    }
    if (!pci_class.starts_with(gpu_class)) return read_devices(element, parent);
    node.kind = NodeKind::gpu;
    node.gpu.emplace();
    topology_.add(std::move(node));
    return {};
  }

  Status read_gpu(const XmlElement& element, TopologyNode node) {
    node.kind = NodeKind::gpu;
    GYRE_ASSIGN(const std::int64_t ordinal, element.integer("dev", -1, -1, 4096));
    GYRE_ASSIGN(const std::int64_t capability, element.integer("sm", 0, 0, 1000));
    GYRE_ASSIGN(const std::int64_t direct, element.integer("gdr", 0, 0, 1));
    node.gpu = GpuTraits{static_cast<int>(ordinal), static_cast<int>(capability), direct == 1, {}};
    const int index = topology_.add(std::move(node));
    for (const XmlElement& child : element.children) {
      if (child.name == "nvlink") GYRE_TRY(read_nvlink(child, index));
      if (child.name == "c2c") GYRE_TRY(read_c2c(child, index));
    }
    return {};
  }

  Status read_nvlink(const XmlElement& element, int gpu) {
    GYRE_ASSIGN(const std::int64_t lanes, element.integer("count", 1, 1, 1024));
    pending_.push_back({&element, gpu, kernel_bus_id(element.attribute("target")),
                        std::string(element.attribute("tclass")), static_cast<int>(lanes)});
    return {};
  }

  // To the GPU's own NUMA node, in megabytes per second and link.
  Status read_c2c(const XmlElement& element, int gpu) {
    GYRE_ASSIGN(const std::int64_t lanes, element.integer("count", 1, 1, 1024));
    GYRE_ASSIGN(const std::int64_t megabytes, element.integer("bw", 0, 0, 1'000'000'000));
    topology_.links.push_back({topology_.above(gpu, NodeKind::numa_node), gpu, JointKind::c2c,
                               static_cast<int>(lanes),
                               static_cast<double>(megabytes * lanes) / 1000});
    return {};
  }

  // `device`: its place on the bus; null if there is none.
  Status read_nic(const XmlElement& element, int parent, const TopologyNode* device) {
    TopologyNode node = device != nullptr ? *device : TopologyNode{};
    node.kind = NodeKind::nic;
    node.parent = parent;
    const int nic = topology_.add(std::move(node));
    for (const XmlElement& child : element.children)
      if (child.name == "net") GYRE_TRY(read_net(child, nic));
    return {};
  }

  Status read_net(const XmlElement& element, int nic) {
    TopologyNode node;
    node.kind = NodeKind::port;
    node.parent = nic;
    node.name = element.attribute("name");
    if (node.name.empty()) return element.wrong("a network port without a name");
    GYRE_ASSIGN(const double megabits, element.figure("speed", 0));
    node.gigabytes_per_s = megabits / megabits_per_gigabyte;
    PortTraits port;
    GYRE_ASSIGN(const std::int64_t number, element.integer("port", 1, 0, 255));
    GYRE_ASSIGN(const std::int64_t direct, element.integer("gdr", 0, 0, 1));
    port.number = static_cast<int>(number);
    port.nic_reaches_gpus = direct == 1;
    port.guid = element.attribute("guid");
    // What NCCL's own socket transport opens has the kernel's name of an interface; it has no guid.
    port.has_verbs = !port.guid.empty() && port.guid != "0x0";
    node.port = std::move(port);
    topology_.add(std::move(node));
    return {};
  }

  int the_nv_switch() {
    if (nv_switch_ >= 0) return nv_switch_;
    TopologyNode node;
    node.kind = NodeKind::nv_switch;
    node.parent = 0;
    return nv_switch_ = topology_.add(std::move(node));
  }

  // Both ends of NVLink name it. The other end may be hidden from who wrote the file.
  Status join_all() {
    std::map<std::string, int> by_bus;
    for (int i = 0; i < static_cast<int>(topology_.nodes.size()); ++i)
      by_bus.emplace(topology_.node(i).bus_id, i);
    const auto find = [](const auto& map, const std::string& bus_id) {
      const auto found = map.find(bus_id);
      return found == map.end() || bus_id.empty() ? -1 : found->second;
    };
    std::map<std::pair<int, int>, int> lanes_from;  // one end, the other
    for (const PendingNvLink& one : pending_) {
      const bool to_switch = one.target_class.starts_with(switch_class);
      const int target = to_switch ? the_nv_switch() : find(by_bus, one.target);
      if (target < 0) continue;
      if (target == one.gpu) return one.element->wrong("a GPU with an NVLink to itself");
      if (!to_switch && topology_.node(target).kind != NodeKind::gpu)
        return one.element->wrong(
            fmt::format("NVLink to {}, which is no GPU", node_text(topology_.node(target))));
      int& lanes = lanes_from[{one.gpu, target}];
      if (lanes != 0 && !to_switch)
        return one.element->wrong(fmt::format("NVLinks to {} are there twice", one.target));
      lanes += one.lanes;
      const auto other = lanes_from.find({target, one.gpu});
      if (other != lanes_from.end() && other->second != lanes)
        return one.element->wrong(
            fmt::format("{} NVLinks, of which the other end has {}", lanes, other->second));
    }
    for (const auto& [ends, lanes] : lanes_from) {
      const auto [from, to] = std::minmax(ends.first, ends.second);
      if (ends.first > ends.second && lanes_from.contains({from, to})) continue;
      topology_.links.push_back({from, to, JointKind::nvlink, lanes, lanes * lane_speed(ends)});
    }
    std::ranges::sort(topology_.links, {},
                      [](const TopologyLink& link) { return std::pair(link.from, link.to); });
    return {};
  }

  double lane_speed(std::pair<int, int> ends) const {
    const auto& gpu = topology_.node(ends.first).gpu;
    return nvlink_gigabytes_per_s(gpu ? gpu->capability : 0);
  }

  Topology topology_;
  std::set<std::string> bus_ids_;
  int nv_switch_ = -1;
  std::vector<PendingNvLink> pending_;
};

}  // namespace

bool is_nccl_xml(const XmlElement& root) { return root.name == "system"; }

Result<Topology> read_nccl_xml(const XmlElement& root) {
  if (!is_nccl_xml(root)) return root.wrong("NCCL's topology files begin with <system>");
  return NcclReader().read(root);
}

}  // namespace gyre::topology
