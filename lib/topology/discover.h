// Discovery: the parts of this host, from hwloc, the kernel's files of devices, NVML and UCX. It
// never fails: `missed` names the facts that it could not find out, and the rest holds.
#pragma once

#include "lib/loaded/nvml.h"
#include "lib/loaded/ucx.h"
#include "lib/topology/topology.h"

#include <string>

namespace gyre::topology {

// Where discovery looks; tests point it elsewhere.
struct DiscoverySources {
  bool use_hwloc = true;
  bool with_devices = true;  // false: processors and memory alone, which takes less time
  std::string sysfs = "/sys";
  const loaded::Nvml* nvml = nullptr;  // null: it could not be loaded
  const loaded::Ucx* ucx = nullptr;    // null: it is not asked (docs/decisions/36)
};

// Of the processors that this process may use. About 10 ms, more on a host of many devices or with
// UCX.
Topology discover(const DiscoverySources& sources);

// Its parts, in the order in which `discover` calls them.
Topology discover_places(const DiscoverySources& sources);  // processors, memory, the PCI tree
void add_ports(Topology& topology, const std::string& sysfs);
void add_gpus(Topology& topology, const loaded::Nvml& nvml);
void add_ucx(Topology& topology, const loaded::Ucx& ucx);  // each transport at the port it uses

}  // namespace gyre::topology
