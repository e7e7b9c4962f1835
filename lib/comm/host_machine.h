// HostMachine: the topology of this host, once found and kept: as discovered, or as the file says
// that GYRE_TOPO_FILE names. Discovery takes some 10 ms, so nothing that happens in every job asks
// for it: those who do are the log, and ranks with a file.
#pragma once

#include "lib/base/status.h"
#include "lib/topology/topology.h"

#include <map>
#include <mutex>
#include <string>

namespace gyre::comm {

class HostMachine {
 public:
  // `file`: GYRE_TOPO_FILE; empty: this host as it is. An error names the file and the line. The
  // topology lives as long as this object.
  Result<const topology::Topology*> find(const std::string& file);

 private:
  std::mutex mutex_;
  std::map<std::string, topology::Topology> found_;  // by file
};

}  // namespace gyre::comm
