#include "transports/p2p/survey.h"

#include "transports/p2p/bus.h"

#include <algorithm>
#include <unistd.h>

namespace gyre::p2p {

namespace cu = loaded::cu;
namespace nvml = loaded::nvml;

namespace {

// With its place on the bus, where the driver says it.
struct OtherGpu {
  RouteReport toward;
  std::string bus_id = {};
};

// What the driver says of the devices that the process sees.
std::vector<OtherGpu> ask_driver(const loaded::CudaDriver& driver, const OwnGpu& own) {
  std::vector<OtherGpu> found;
  int devices = 0;
  loaded::CuDevice device = 0;
  if (driver.device_count(&devices) != cu::success ||
      driver.device_get(&device, own.ordinal) != cu::success)
    return found;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    loaded::CuDevice other = 0;
    int can = 0;
    char bus_id[32] = "";
    if (ordinal == own.ordinal || driver.device_get(&other, ordinal) != cu::success ||
        driver.device_can_access_peer(&can, device, other) != cu::success ||
        driver.device_pci_bus_id(bus_id, sizeof bus_id, other) != cu::success)
      continue;
    const std::string uuid = loaded::find_uuid(driver, other);
    if (uuid.empty()) continue;
    found.push_back(
        {{.uuid = uuid, .access = can != 0 ? PeerAccess::reaches : PeerAccess::no_peer_access},
         bus_id});
  }
  return found;
}

// One GPU's end of NVLink.
struct NvLinks {
  std::uint32_t to_peer = 0;    // straight
  std::uint32_t to_switch = 0;  // which leads to all that have such links
};

NvLinks count_links(const loaded::Nvml& library, loaded::NvmlDevice device,
                    const loaded::NvmlPciInfo& peer) {
  NvLinks links;
  for (unsigned link = 0; link < nvml::max_links; ++link) {
    unsigned state = 0;
    int type = -1;
    loaded::NvmlPciInfo remote{};
    if (library.nvlink_state(device, link, &state) != nvml::success || state != nvml::enabled ||
        library.nvlink_remote_type(device, link, &type) != nvml::success)
      continue;
    if (type == nvml::nvlink_to_switch) ++links.to_switch;
    if (type != nvml::nvlink_to_gpu ||
        library.nvlink_remote_pci(device, link, &remote) != nvml::success)
      continue;
    links.to_peer +=
        remote.domain == peer.domain && remote.bus == peer.bus && remote.device == peer.device;
  }
  return links;
}

std::uint32_t lanes_between(const loaded::Nvml& library, loaded::NvmlDevice device,
                            loaded::NvmlDevice peer) {
  loaded::NvmlPciInfo here{}, there{};
  if (library.device_pci(device, &here) != nvml::success ||
      library.device_pci(peer, &there) != nvml::success)
    return 0;
  const NvLinks out = count_links(library, device, there);
  if (out.to_peer > 0 || out.to_switch == 0) return out.to_peer;
  return std::min(out.to_switch, count_links(library, peer, here).to_switch);
}

// NCCL's words for what NVML tells apart: GPUs of one NUMA node are behind one host bridge to it.
Path path_of(int level) {
  if (level <= nvml::topology_single) return Path::one_switch;
  if (level <= nvml::topology_multiple) return Path::switches;
  return level <= nvml::topology_node ? Path::host_bridge : Path::interconnect;
}

bool reaches(const loaded::Nvml& library, loaded::NvmlDevice device, loaded::NvmlDevice peer) {
  for (const int index : {nvml::p2p_read, nvml::p2p_write}) {
    int status = -1;
    if (library.p2p_status(device, peer, index, &status) != nvml::success || status != nvml::p2p_ok)
      return false;
  }
  return true;
}

// Adds those that the driver does not show, and what lies between.
void ask_nvml(const loaded::Nvml& library, const OwnGpu& own, std::vector<OtherGpu>& found) {
  loaded::NvmlDevice device = nullptr;
  unsigned devices = 0;
  if (library.device_by_bus_id(own.bus_id.c_str(), &device) != nvml::success ||
      library.device_count(&devices) != nvml::success)
    return;
  for (unsigned index = 0; index < devices; ++index) {
    loaded::NvmlDevice peer = nullptr;
    char name[nvml::uuid_bytes] = "";
    if (library.device_by_index(index, &peer) != nvml::success ||
        library.device_uuid(peer, name, sizeof name) != nvml::success || peer == device)
      continue;
    auto at = std::ranges::find(found, name, [](const OtherGpu& one) { return one.toward.uuid; });
    if (at == found.end()) {
      const bool can = reaches(library, device, peer);
      at = found.insert(
          at, {{.uuid = name, .access = can ? PeerAccess::reaches : PeerAccess::no_peer_access}});
    }
    RouteReport& known = at->toward;
    int level = 0;
    known.lanes = lanes_between(library, device, peer);
    if (known.lanes > 0)
      known.path = Path::nvlink;
    else if (library.topology_between(device, peer, &level) == nvml::success)
      known.path = path_of(level);
  }
}

}  // namespace

std::vector<RouteReport> survey(const loaded::CudaDriver& driver, const loaded::Nvml* nvml,
                                const OwnGpu& own, const Limits& limits, const std::string& sysfs) {
  std::vector<OtherGpu> others = ask_driver(driver, own);
  if (nvml != nullptr) ask_nvml(*nvml, own, others);
  std::vector<RouteReport> found;
  for (OtherGpu& other : others) {
    RouteReport& one = found.emplace_back(std::move(other.toward));
    const bool only_bus = one.path == Path::unknown;
    if (only_bus) one.path = path_on_bus(sysfs, own.bus_id, other.bus_id);
    if (one.access != PeerAccess::reaches) continue;
    if (limits.disabled)
      one.access = PeerAccess::disabled;
    else if (limits.farthest == Path::same)
      one.access = PeerAccess::too_far;
    else if (one.path == Path::unknown || one.path <= limits.farthest)
      continue;
    else if (!only_bus)
      one.access = PeerAccess::too_far;
    else if (limits.farthest > Path::nvlink)
      one.access = PeerAccess::too_far_on_bus;
  }
  return found;
}

// Drivers before CUDA 12.3 do not say: there the service's control socket tells.
bool runs_mps(const loaded::CudaDriver& driver, int ordinal, const char* pipe_directory) {
  loaded::CuDevice device = 0;
  int enabled = 0;
  if (driver.device_get(&device, ordinal) == cu::success &&
      driver.device_attribute(&enabled, cu::mps_enabled, device) == cu::success)
    return enabled != 0;
  const std::string folder = pipe_directory != nullptr ? pipe_directory : "/tmp/nvidia-mps";
  return access((folder + "/control").c_str(), F_OK) == 0;
}

}  // namespace gyre::p2p
