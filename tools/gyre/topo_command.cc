#include "tools/gyre/topo_command.h"

#include "lib/base/settings.h"
#include "lib/command_line/command_line.h"
#include "lib/links/candidates.h"
#include "lib/topology/describe.h"
#include "lib/topology/discover.h"
#include "lib/topology/draw.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/paths.h"
#include "lib/topology/topology_file.h"
#include "tools/gyre/topo_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;
using topology::NodeKind;
using topology::Topology;
using topology::TopologyNode;

struct Options {
  std::string file;
  std::string format;              // empty: text for people
  std::vector<std::string> ends;   // of the path that is asked for
  std::vector<std::string> ranks;  // whose transports are asked for
  std::vector<std::string> pair;   // files that are compared
  std::string picture;             // where it goes
  bool json = false;
  TopoQuestion search;
};

// More would be slow to print; searches of communicators have no such limit.
constexpr int max_hosts = 1024, max_channels = 64;

// hwloc writes to stderr where a container hides files of the kernel, UCX to stdout where a
// transport cannot be opened, and it handles signals. `missed` says what they lacked.
Topology this_host() {
  for (const auto& [name, value] :
       {std::pair("HWLOC_HIDE_ERRORS", "2"), std::pair("UCX_LOG_LEVEL", "fatal"),
        std::pair("UCX_LOG_FILE", "stderr"), std::pair("UCX_HANDLE_ERRORS", "none")})
    (void)setenv(name, value, 0);
  const auto nvml = loaded::load_nvml();
  const auto ucx = loaded::load_ucx();
  topology::DiscoverySources sources;
  if (nvml.ok()) sources.nvml = nvml->get();
  if (ucx.ok()) sources.ucx = ucx->get();
  Topology machine = topology::discover(sources);
  if (!ucx.ok())
    machine.missed.push_back(fmt::format("UCX's transports: {}", ucx.status().message()));
  return machine;
}

// By bus id, by a port's name, or by kind and number: "gpu0", "numa1", "core3".
Result<int> find_node(const Topology& machine, const std::string& word) {
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i) {
    const TopologyNode& node = machine.node(i);
    if (!word.empty() && (node.bus_id == word || short_name(node) == word)) return i;
  }
  return invalid_argument(
      fmt::format("there is no \"{}\" here; name a bus id (0000:3b:00.0), a port (eth0), or a "
                  "number: gpu0, numa1, core3",
                  word));
}

Result<std::string> device_path_text(const Topology& machine,
                                     const std::vector<std::string>& ends) {
  if (ends.size() != 2) return invalid_argument("--path takes two ends, as in --path gpu0 eth0");
  GYRE_ASSIGN(const int from, find_node(machine, ends[0]));
  GYRE_ASSIGN(const int to, find_node(machine, ends[1]));
  const topology::EdgeTable table(machine);
  const topology::DevicePath path = table.path_between(from, to);
  std::string text =
      fmt::format("{}, {:.3g} GB/s\n", path_class_name(path.kind), path.gigabytes_per_s);
  text += "  " + node_text(machine.node(from)) + "\n";
  for (const int edge : path.edges) {
    const auto& way = table.edges()[static_cast<std::size_t>(edge)];
    text += fmt::format("  {}  ({:.3g} GB/s{})\n", node_text(machine.node(way.to)),
                        way.gigabytes_per_s, way.is_guessed ? ", assumed" : "");
  }
  return text;
}

Result<std::string> difference_text(const std::vector<std::string>& files) {
  if (files.size() != 2)
    return invalid_argument("--diff takes two files, as in --diff a.xml b.xml");
  GYRE_ASSIGN(const Topology first, topology::read_topology_file(files[0]));
  GYRE_ASSIGN(const Topology second, topology::read_topology_file(files[1]));
  return difference(first, second);
}

// A rank at a part of one of the hosts: "gpu0", or "1/gpu0" on the second host.
Result<topology::RankLocation> find_rank(const Topology& machine, int hosts,
                                         std::string_view word) {
  int host = 0;
  if (const std::size_t slash = word.find('/'); slash != std::string_view::npos) {
    const std::string_view number = word.substr(0, slash);
    const auto [rest, error] = std::from_chars(number.data(), number.data() + slash, host);
    if (error != std::errc() || rest != number.data() + slash || host < 0 || host >= hosts)
      return invalid_argument(
          fmt::format("\"{}\": hosts are 0 to {}; --hosts says how many", word, hosts - 1));
    word.remove_prefix(slash + 1);
  }
  GYRE_ASSIGN(const int node, find_node(machine, std::string(word)));
  if (!topology::may_hold_rank(machine.node(node).kind))
    return invalid_argument(
        fmt::format("no rank is on {}, which computes nothing", node_text(machine.node(node))));
  return topology::RankLocation{host, &machine, node};
}

Result<std::string> why_text(const Topology& machine, const Options& options,
                             const Settings& settings) {
  if (options.ranks.size() != 2)
    return invalid_argument("--why takes the places of two ranks, as in --why gpu0 gpu1");
  GYRE_ASSIGN(const topology::RankLocation from,
              find_rank(machine, options.search.hosts, options.ranks[0]));
  GYRE_ASSIGN(const topology::RankLocation to,
              find_rank(machine, options.search.hosts, options.ranks[1]));
  GYRE_ASSIGN(const std::vector<comm::TransportCandidate> candidates,
              comm::find_candidates(from, to, settings));
  const comm::TransportCandidate* const first = comm::taken(candidates);
  std::string text = fmt::format("{} to {}: {}\n", options.ranks[0], options.ranks[1],
                                 first == nullptr ? "no transport" : first->transport);
  for (const comm::TransportCandidate& one : candidates)
    text += fmt::format("  {:5} {:8} {}\n", one.transport,
                        &one == first ? "taken"
                        : one.reaches ? "possible"
                                      : "no",
                        one.reaches ? path_text(one.path) : one.reason);
  return text;
}

Status write_picture(const std::string& path, const TopoSearch& search) {
  GYRE_ASSIGN(const std::string text, draw(search.cluster, search.found));
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file.fail()) return invalid_argument(fmt::format("cannot write {}", path));
  return {};
}

Result<std::string> run(const Options& options) {
  if (!options.pair.empty()) return difference_text(options.pair);
  std::vector<std::string> warnings;  // of other names than are asked for here
  GYRE_ASSIGN(const Settings settings, read_settings(&warnings));
  const std::string& file = options.file.empty() ? settings.topology_file : options.file;
  Topology machine;
  if (file.empty()) {
    machine = this_host();
  } else {
    GYRE_ASSIGN(machine, topology::read_topology_file(file));
  }
  if (!options.ranks.empty()) return why_text(machine, options, settings);
  if (!options.ends.empty()) return device_path_text(machine, options.ends);
  if (options.format == "hwloc") return write_hwloc_xml(machine);
  if (options.format == "nccl") return write_nccl_xml(machine);
  GYRE_ASSIGN(const TopoSearch search, search_machine(std::move(machine), options.search));
  if (!options.picture.empty()) GYRE_TRY(write_picture(options.picture, search));
  if (options.json) return search_json(search);
  if (!options.picture.empty()) return std::string();
  return search.found.empty() ? describe(search.cluster.machines.front()) : search_text(search);
}

}  // namespace

int topo_command(int argc, char** argv) {
  Options options;
  CommandLine line("gyre topo",
                   "Shows this host as Gyre sees it: processors, memory, the PCI tree, GPUs with "
                   "their NVLinks, network ports, UCX's transports, and what could not be found "
                   "out. The sources are hwloc, the kernel's files, NVML and UCX. Finds rings and "
                   "trees over the GPUs, or over the cores where there are none.");
  line.add_option("-f,--file", options.file, any_text(), "FILE",
                  "show this file instead: hwloc's XML (lstopo --of xml), or NCCL's "
                  "(NCCL_TOPO_DUMP_FILE); else what GYRE_TOPO_FILE names, else this host");
  line.add_option("--export", options.format, one_of({"hwloc", "nccl"}), "FORMAT",
                  "print XML for hwloc or nccl instead");
  line.add_option("--path", options.ends, any_text(), "FROM TO",
                  "show the path between two parts instead: bus ids, names of ports, or gpu0, "
                  "numa1, core3")
      .takes_several = true;
  line.add_option("--why", options.ranks, any_text(), "A B",
                  "show instead the transports between two ranks, which one is taken, and why; a "
                  "rank is where it runs: gpu0, core3, or with --hosts 1/gpu0")
      .takes_several = true;
  line.add_flag("--rings", options.search.rings, "find rings over all ranks, and say why these");
  line.add_flag("--trees", options.search.trees, "the same of double binary trees");
  line.add_option("--hosts", options.search.hosts, whole(1, max_hosts), "N",
                  "rings and trees over N such hosts (default 1)");
  line.add_option("--channels", options.search.max_channels, whole(1, max_channels), "N",
                  "at most N rings or trees (default 64); a communicator on GPUs says in its log "
                  "how many it may have");
  line.add_option("--svg", options.picture, any_text(), "FILE",
                  "write a picture of the machine, with the rings and trees if they are asked for");
  line.add_flag("--json", options.json, "print the machine for programs, with the rings and trees");
  line.add_option("--diff", options.pair, any_text(), "A B",
                  "show instead the parts that one of two files has alone")
      .takes_several = true;
  line.set_footer(topo_json_schema);
  line.add_example("gyre topo");
  line.add_example("gyre topo --path gpu0 mlx5_0");
  line.add_example("gyre topo --why gpu0 1/gpu0 --hosts 2");
  line.add_example("gyre topo --file dgx.xml --hosts 4 --rings --svg rings.svg");
  line.add_example("gyre topo --export hwloc > this_host.xml");
  if (const std::optional<int> code = line.read(argc, argv)) return *code;
  const Result<std::string> text = run(options);
  if (text.ok()) {
    fmt::print("{}", *text);
    return 0;
  }
  fmt::print(stderr, "gyre topo: {}\n", text.status().message());
  return text.status().code() == Code::InvalidArgument ? exit_usage : 1;
}

}  // namespace gyre::tools
