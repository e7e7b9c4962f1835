// NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE; version 1): NUMA nodes, PCIe, GPUs
// with their NVLinks, and network ports. They say nothing of packages, caches and cores. All of a
// host's NVSwitches are one node there, and so they are here.
#pragma once

#include "lib/topology/topology.h"
#include "lib/topology/xml.h"

namespace gyre::topology {

// Whether that is the file's outermost element.
bool is_nccl_xml(const XmlElement& root);
Result<Topology> read_nccl_xml(const XmlElement& root);
std::string write_nccl_xml(const Topology& topology);

}  // namespace gyre::topology
