// GPUs, their NVLinks and their links to processors (C2C), as NVML counts them: all of the host,
// whatever CUDA_VISIBLE_DEVICES hides.
#include "lib/topology/discover.h"
#include "lib/topology/speeds.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

namespace gyre::topology {
namespace {

using loaded::Nvml;
using loaded::NvmlDevice;
using loaded::NvmlPciInfo;
namespace nvml = loaded::nvml;

constexpr unsigned max_c2c_links = 64;  // far more than any board has

// As the kernel writes it: "0000:3b:00.0". Function 0 is the GPU.
std::string bus_id_of(const NvmlPciInfo& info) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
}

class GpuFinder {
 public:
  GpuFinder(Topology& topology, const Nvml& library) : topology_(topology), nvml_(library) {}

  void find() {
    unsigned count = 0;
    if (nvml_.device_count(&count) != nvml::success) {
      topology_.missed.emplace_back("NVLinks: NVML does not count its devices");
      return;
    }
    std::vector<std::pair<int, NvmlDevice>> gpus;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      NvmlPciInfo info{};
      if (nvml_.device_by_index(i, &device) != nvml::success ||
          nvml_.device_pci(device, &info) != nvml::success) {
        topology_.missed.push_back(fmt::format("GPU {}: NVML does not say where it is", i));
        continue;
      }
      gpus.emplace_back(gpu_at(bus_id_of(info), static_cast<int>(i), device), device);
    }
    for (const auto& [gpu, device] : gpus) count_lanes(gpu, device);
    join();
    for (const auto& [gpu, device] : gpus) join_processor(gpu, device);
  }

 private:
  int gpu_at(const std::string& bus_id, int ordinal, NvmlDevice device) {
    int index = topology_.find_bus_id(bus_id);
    if (index < 0) {
      TopologyNode node;
      node.kind = NodeKind::gpu;
      node.parent = 0;
      node.bus_id = bus_id;
      index = topology_.add(std::move(node));
      topology_.missed.push_back(
          fmt::format("what GPU {} is near: the PCI tree does not show {}", ordinal, bus_id));
    }
    GpuTraits traits;
    traits.ordinal = ordinal;
    int major = 0, minor = 0;
    if (nvml_.cuda_capability(device, &major, &minor) == nvml::success)
      traits.capability = 10 * major + minor;
    char uuid[nvml::uuid_bytes] = "";
    if (nvml_.device_uuid(device, uuid, sizeof uuid) == nvml::success) traits.uuid = uuid;
    topology_.nodes[static_cast<std::size_t>(index)].kind = NodeKind::gpu;
    topology_.nodes[static_cast<std::size_t>(index)].gpu = std::move(traits);
    return index;
  }

  void count_lanes(int gpu, NvmlDevice device) {
    for (unsigned link = 0; link < nvml::max_links; ++link) {
      unsigned on = 0;
      int type = -1;
      if (nvml_.nvlink_state(device, link, &on) != nvml::success || on != nvml::enabled ||
          nvml_.nvlink_remote_type(device, link, &type) != nvml::success)
        continue;
      if (type == nvml::nvlink_to_switch) ++lanes_[{gpu, the_nv_switch()}];
      if (type != nvml::nvlink_to_gpu) continue;
      NvmlPciInfo info{};
      if (nvml_.nvlink_remote_pci(device, link, &info) != nvml::success) continue;
      // Both ends count; the one that is hidden from here does not.
      const int peer = topology_.find_bus_id(bus_id_of(info));
      if (peer > gpu) ++lanes_[{gpu, peer}];
    }
  }

  // All switches of a host are one node, since a GPU has lanes to each of them.
  int the_nv_switch() {
    const std::vector<int> known = topology_.all(NodeKind::nv_switch);
    if (!known.empty()) return known.front();
    TopologyNode node;
    node.kind = NodeKind::nv_switch;
    node.parent = 0;
    return topology_.add(std::move(node));
  }

  // To the GPU's own processor: on boards of Grace.
  void join_processor(int gpu, NvmlDevice device) {
    const unsigned count = field(device, nvml::c2c_count, 0);
    int lanes = 0;
    double megabytes_per_s = 0;
    for (unsigned link = 0; link < std::min(count, max_c2c_links); ++link) {
      if (field(device, nvml::c2c_status, link) != nvml::enabled) continue;
      ++lanes;
      megabytes_per_s += field(device, nvml::c2c_max_bandwidth, link);
    }
    if (lanes == 0) return;
    int processor = topology_.above(gpu, NodeKind::numa_node);
    if (processor < 0) processor = std::max(0, topology_.above(gpu, NodeKind::package));
    topology_.links.push_back({processor, gpu, JointKind::c2c, lanes, megabytes_per_s / 1000});
  }

  // 0 where the driver does not know the field, as before 525.
  unsigned field(NvmlDevice device, unsigned which, unsigned link) const {
    loaded::NvmlFieldValue value{};
    value.field = which;
    value.scope = link;
    const bool is_known =
        nvml_.field_values(device, 1, &value) == nvml::success && value.result == nvml::success;
    return is_known ? value.value.as_unsigned : 0;
  }

  void join() {
    for (const auto& [ends, lanes] : lanes_) {
      const auto [from, to] = std::minmax(ends.first, ends.second);
      const int capability = topology_.node(ends.first).gpu->capability;
      topology_.links.push_back(
          {from, to, JointKind::nvlink, lanes, lanes * nvlink_gigabytes_per_s(capability)});
    }
  }

  Topology& topology_;
  const Nvml& nvml_;
  std::map<std::pair<int, int>, int> lanes_;  // by GPU and the other end
};

}  // namespace

void add_gpus(Topology& topology, const loaded::Nvml& nvml) { GpuFinder(topology, nvml).find(); }

}  // namespace gyre::topology
