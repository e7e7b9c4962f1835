#include "lib/comm/host_machine.h"

#include "lib/topology/discover.h"
#include "lib/topology/topology_file.h"

#include <utility>

namespace gyre::comm {

Result<const topology::Topology*> HostMachine::find(const std::string& file) {
  const std::lock_guard lock(mutex_);
  if (const auto known = found_.find(file); known != found_.end()) return &known->second;
  topology::Topology machine;
  if (file.empty()) {
    // Without UCX, which would change this process (docs/decisions/36).
    machine = topology::discover({});
  } else {
    Result<topology::Topology> read = topology::read_topology_file(file);
    if (!read.ok()) return std::move(read).status().while_doing("reading GYRE_TOPO_FILE");
    machine = std::move(read).value();
  }
  return &found_.emplace(file, std::move(machine)).first->second;
}

}  // namespace gyre::comm
