#include "lib/topology/topology_file.h"

#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"

namespace gyre::topology {

Result<Topology> read_topology(std::string_view text) {
  GYRE_ASSIGN(const XmlElement root, parse_xml(text));
  if (is_nccl_xml(root)) return read_nccl_xml(root);
  if (is_hwloc_xml(root)) return read_hwloc_xml(root);
  return root.wrong("this is neither hwloc's XML (<topology>) nor NCCL's (<system>)");
}

}  // namespace gyre::topology
