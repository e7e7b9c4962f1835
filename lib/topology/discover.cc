#include "lib/topology/discover.h"

#include "lib/base/owned.h"
#include "lib/topology/hwloc_xml.h"

#include <fmt/core.h>
#ifdef GYRE_HAS_HWLOC
#include <hwloc.h>
#endif

#include <cerrno>
#include <climits>
#include <filesystem>
#include <system_error>
#include <unistd.h>

namespace gyre::topology {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, HOST_NAME_MAX) == 0 ? std::string(name) : std::string();
}

#ifdef GYRE_HAS_HWLOC

struct HwlocTraits {
  using Handle = hwloc_topology_t;
  static hwloc_topology_t none() { return nullptr; }
  static void close(hwloc_topology_t topology) { hwloc_topology_destroy(topology); }
};

// What hwloc finds, by way of its XML: so a host and its file are read alike.
Result<Topology> ask_hwloc(bool with_devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::from_errno("hwloc_topology_init", errno);
  const Owned<HwlocTraits> topology(raw);
  if (with_devices) (void)hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  (void)hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  // Plugins that initialise a GPU's library or open a display. Of what they say, nothing is read.
  for (const char* const plugin : {"cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"})
    (void)hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  if (hwloc_topology_load(raw) != 0) return Status::from_errno("hwloc_topology_load", errno);
  char* buffer = nullptr;
  int bytes = 0;
  if (hwloc_topology_export_xmlbuffer(raw, &buffer, &bytes, 0) != 0)
    return Status::from_errno("hwloc_topology_export_xmlbuffer", errno);
  // The length takes in the zero at the end.
  const std::string text(buffer, bytes > 0 ? static_cast<std::size_t>(bytes - 1) : 0);
  hwloc_free_xmlbuffer(raw, buffer);
  GYRE_ASSIGN(const XmlElement root, parse_xml(text));
  return read_hwloc_xml(root);
}

#else

Result<Topology> ask_hwloc(bool) {
  return invalid_usage("this build has no hwloc (-Dhwloc=enabled)");
}

#endif

}  // namespace

Topology discover_places(const DiscoverySources& sources) {
  Result<Topology> found = sources.use_hwloc
                               ? ask_hwloc(sources.with_devices)
                               : invalid_usage("discovery was asked to do without hwloc");
  if (found.ok()) {
    std::error_code hidden;
    const bool has_pci = std::filesystem::exists(sources.sysfs + "/bus/pci/devices", hidden);
    if (sources.with_devices && !has_pci)
      found->missed.push_back(fmt::format(
          "no PCI devices: {}/bus/pci is not there, as in some containers", sources.sysfs));
    return std::move(found).value();
  }
  const Result<ProcessorSet> processors = allowed_processors();
  Topology flat = flat_topology(host_name(), processors.ok() ? *processors : ProcessorSet());
  flat.missed.push_back(
      fmt::format("packages, caches, NUMA nodes and the PCI tree: {}", found.status().message()));
  if (!processors.ok())
    flat.missed.push_back(fmt::format("processors: {}", processors.status().message()));
  return flat;
}

Topology discover(const DiscoverySources& sources) {
  Topology topology = discover_places(sources);
  add_ports(topology, sources.sysfs);
  if (sources.nvml != nullptr)
    add_gpus(topology, *sources.nvml);
  else if (!topology.all(NodeKind::gpu).empty())
    topology.missed.emplace_back("NVLinks: NVML (libnvidia-ml.so.1) was not loaded");
  if (sources.ucx != nullptr) add_ucx(topology, *sources.ucx);
  return topology;
}

}  // namespace gyre::topology
