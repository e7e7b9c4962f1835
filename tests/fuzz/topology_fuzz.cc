// Topology files of hwloc and of NCCL. Input: the file. An accepted topology is sound, has paths,
// and is written to both formats. The files are accepted again, and hwloc's says the same. Rings
// and trees over a few of its parts are found in few steps, or refused. The input is read as a
// peer's locality, too.
#include "lib/topology/channels.h"
#include "lib/topology/describe.h"
#include "lib/topology/draw.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/locality.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/paths.h"
#include "lib/topology/topology_file.h"
#include "tests/fuzz/input.h"

namespace topology_fuzz {

using namespace gyre;
using namespace gyre::topology;

namespace {

void look_at_paths(const Topology& topology) {
  const EdgeTable table(topology);
  for (const int node : {0, static_cast<int>(topology.nodes.size()) - 1})
    for (const DevicePath& path : table.paths_from(node)) {
      if (path.kind == PathClass::none) continue;
      GYRE_DEMAND(path.gigabytes_per_s > 0 && path.nodes.front() == node);
      GYRE_DEMAND(path.edges.size() + 1 == path.nodes.size());
    }
}

void look_at_locality(std::string_view text) {
  const Locality read = decode_locality(text);
  GYRE_DEMAND(decode_locality(encode(read)) == read);
  if (read != Locality())
    GYRE_DEMAND(path_class(read, read) != PathClass::none || read.package < 0);
}

void look_for_channels(const Topology& topology, int hosts) {
  std::vector<int> members = usual_members(topology);
  if (members.size() > 12) members.resize(12);
  const Cluster cluster = equal_hosts(topology, hosts, members);
  const SearchLimits limits{.max_steps = 20'000, .max_channels = 8};
  for (const auto& found : {find_rings(cluster, limits), find_trees(cluster, limits)}) {
    if (!found.ok()) {
      GYRE_DEMAND(!found.status().message().empty());
      continue;
    }
    GYRE_DEMAND(!found->channels.empty() && found->channels.size() <= 8);
    GYRE_DEMAND(found->gigabytes_per_s <= found->bound_gigabytes_per_s);
    for (const FoundChannel& channel : found->channels)
      GYRE_DEMAND(static_cast<int>(channel.order.size()) == cluster.rank_count());
    const Result<std::string> picture = draw(cluster, std::span(&*found, 1));
    GYRE_DEMAND(picture.ok() || topology.nodes.size() > max_drawn_nodes);
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  look_at_locality(text);
  const Result<Topology> made = read_topology(text);
  if (!made.ok()) {
    GYRE_DEMAND(!made.status().message().empty());
    return 0;
  }
  GYRE_DEMAND(check(*made).ok());
  GYRE_DEMAND(!describe(*made).empty());
  look_at_paths(*made);
  for (const int hosts : {1, 2}) look_for_channels(*made, hosts);
  // Writing may lose what a format cannot say, but never makes a file that is refused.
  const Result<Topology> by_hwloc = read_topology(write_hwloc_xml(*made));
  GYRE_DEMAND(by_hwloc.ok());
  GYRE_DEMAND(read_topology(write_nccl_xml(*made)).ok());
  // What came back once comes back for ever.
  const Result<Topology> again = read_topology(write_hwloc_xml(*by_hwloc));
  GYRE_DEMAND(again.ok() && *again == *by_hwloc);
  return 0;
}

GYRE_FUZZ_TARGET(topology)

}  // namespace topology_fuzz
