#include "tools/gyre/topo_command.h"

#include "lib/command_line/command_line.h"
#include "lib/topology/describe.h"
#include "lib/topology/discover.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/paths.h"
#include "lib/topology/topology_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace gyre::tools {
namespace {

using namespace command_line;
using topology::NodeKind;
using topology::Topology;
using topology::TopologyNode;

struct Options {
  std::string file;
  std::string format;             // empty: text for people
  std::vector<std::string> ends;  // of the path that is asked for
};

Result<std::string> read_file(const std::string& name) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(name, error);
  if (error) return Status::from_errno(fmt::format("reading {}", name), error.value());
  if (bytes > topology::max_xml_bytes)
    return invalid_argument(fmt::format("{} has {} bytes; topology files have at most {}", name,
                                        bytes, topology::max_xml_bytes));
  std::ifstream stream(name, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return Status::from_errno(fmt::format("reading {}", name), EIO);
  return std::move(text).str();
}

// hwloc writes to stderr where a container hides files of the kernel; `missed` says what it lacked.
Topology this_host() {
  (void)setenv("HWLOC_HIDE_ERRORS", "2", 0);
  const auto nvml = loaded::load_nvml();
  topology::DiscoverySources sources;
  if (nvml.ok()) sources.nvml = nvml->get();
  return topology::discover(sources);
}

// By bus id, by a port's name, or by kind and number: "gpu0", "numa1", "core3".
Result<int> find_node(const Topology& machine, const std::string& word) {
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i) {
    const TopologyNode& node = machine.node(i);
    const int ordinal = node.gpu ? node.gpu->ordinal : -1;
    const bool is_it =
        node.bus_id == word || (node.kind == NodeKind::port && node.name == word) ||
        (node.kind == NodeKind::gpu && ordinal >= 0 && word == fmt::format("gpu{}", ordinal)) ||
        (node.kind == NodeKind::numa_node && word == fmt::format("numa{}", node.number)) ||
        (node.kind == NodeKind::core && word == fmt::format("core{}", node.number));
    if (is_it && !word.empty()) return i;
  }
  return invalid_argument(
      fmt::format("there is no \"{}\" here; name a bus id (0000:3b:00.0), a port (eth0), or a "
                  "number: gpu0, numa1, core3",
                  word));
}

Result<std::string> path_text(const Topology& machine, const std::vector<std::string>& ends) {
  if (ends.size() != 2) return invalid_argument("--path takes two ends, as in --path gpu0 eth0");
  GYRE_ASSIGN(const int from, find_node(machine, ends[0]));
  GYRE_ASSIGN(const int to, find_node(machine, ends[1]));
  const topology::EdgeTable table(machine);
  const topology::DevicePath path = table.paths_from(from)[static_cast<std::size_t>(to)];
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

Result<std::string> run(const Options& options) {
  Topology machine;
  if (options.file.empty()) {
    machine = this_host();
  } else {
    GYRE_ASSIGN(const std::string text, read_file(options.file));
    Result<Topology> parsed = topology::read_topology(text);
    if (!parsed.ok()) return std::move(parsed).status().while_doing(options.file);
    machine = std::move(parsed).value();
  }
  if (!options.ends.empty()) return path_text(machine, options.ends);
  if (options.format == "hwloc") return write_hwloc_xml(machine);
  if (options.format == "nccl") return write_nccl_xml(machine);
  return describe(machine);
}

}  // namespace

int topo_command(int argc, char** argv) {
  Options options;
  CommandLine line("gyre topo",
                   "Shows this host as Gyre sees it: processors, memory, the PCI tree, GPUs with "
                   "their NVLinks, network ports, and what could not be found out.");
  line.add_option("-f,--file", options.file, any_text(), "FILE",
                  "show this file instead: hwloc's XML (lstopo --of xml), or NCCL's "
                  "(NCCL_TOPO_DUMP_FILE)");
  line.add_option("--export", options.format, one_of({"hwloc", "nccl"}), "FORMAT",
                  "print XML for hwloc or nccl instead");
  line.add_option("--path", options.ends, any_text(), "FROM TO",
                  "show the path between two parts instead: bus ids, names of ports, or gpu0, "
                  "numa1, core3")
      .takes_several = true;
  line.add_example("gyre topo");
  line.add_example("gyre topo --path gpu0 mlx5_0");
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
