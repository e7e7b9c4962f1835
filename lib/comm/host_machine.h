// HostMachine: the topology of this host, once found and kept: as discovered, or as the file says
// that GYRE_TOPO_FILE names. Discovery takes some 10 ms, so nothing that happens in every job asks
// for it: those who do are the log, ranks with a file, and ranks on GPUs that may have NVLinks.
#pragma once

#include "lib/base/status.h"
#include "lib/loaded/nvml.h"
#include "lib/topology/topology.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace gyre::comm {

class HostMachine {
 public:
  // `file`: GYRE_TOPO_FILE; empty: this host as it is, with what NVML knows unless that is null. An
  // error names the file and the line. The topology lives as long as this object.
  Result<const topology::Topology*> find(const std::string& file,
                                         const loaded::Nvml* nvml = nullptr);
  // The tests': what was found by a library that goes.
  void forget();

 private:
  std::mutex mutex_;
  // By file, and the library that was asked.
  std::map<std::pair<std::string, const loaded::Nvml*>, topology::Topology> found_;
};

}  // namespace gyre::comm
