// hwloc's XML, version 2 (lstopo --of xml): packages, NUMA nodes, shared caches, cores, the PCI
// tree, and devices by their names. NVLinks and speeds of ports, which hwloc does not know, stand
// in <info> elements whose names begin with "Gyre". hwloc keeps those and reads the file.
#pragma once

#include "lib/topology/topology.h"
#include "lib/topology/xml.h"

namespace gyre::topology {

// Whether that is the file's outermost element.
bool is_hwloc_xml(const XmlElement& root);
Result<Topology> read_hwloc_xml(const XmlElement& root);
std::string write_hwloc_xml(const Topology& topology);

}  // namespace gyre::topology
