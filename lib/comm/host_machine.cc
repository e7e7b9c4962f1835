#include "lib/comm/host_machine.h"

#include "lib/topology/discover.h"
#include "lib/topology/topology_file.h"

#include <utility>

namespace gyre::comm {

Result<const topology::Topology*> HostMachine::find(const std::string& file,
                                                    const loaded::Nvml* nvml) {
  const std::pair key(file, file.empty() ? nvml : nullptr);
  const std::lock_guard lock(mutex_);
  if (const auto known = found_.find(key); known != found_.end()) return &known->second;
  topology::Topology machine;
  if (file.empty()) {
    // Without UCX, which would change this process (docs/decisions/36).
    topology::DiscoverySources sources;
    sources.nvml = nvml;
    machine = topology::discover(sources);
  } else {
    Result<topology::Topology> read = topology::read_topology_file(file);
    if (!read.ok()) return std::move(read).status().while_doing("reading GYRE_TOPO_FILE");
    machine = std::move(read).value();
  }
  return &found_.emplace(key, std::move(machine)).first->second;
}

void HostMachine::forget() {
  const std::lock_guard lock(mutex_);
  found_.clear();
}

}  // namespace gyre::comm
