#include "tools/gyre/cpu_binding.h"

#include "lib/topology/discover.h"

#include <fmt/core.h>

#include <cstdlib>
#include <utility>

namespace gyre::tools {
namespace {

using topology::ProcessorSet;

struct Places {
  std::vector<ProcessorSet> cores;  // of the processors allowed; neighbours side by side
  std::vector<ProcessorSet> nodes;  // NUMA nodes with a processor allowed; empty when unknown
};

// The sets of all nodes of one kind, cut to what is allowed.
std::vector<ProcessorSet> node_sets(const topology::Topology& machine, topology::NodeKind kind,
                                    const ProcessorSet& allowed) {
  std::vector<ProcessorSet> sets;
  for (const int node : machine.all(kind)) {
    ProcessorSet set = machine.node(node).processors;
    set.keep_only(allowed);
    if (!set.empty()) sets.push_back(std::move(set));
  }
  return sets;
}

// Without hwloc's own words on stderr, where a container hides sysfs; ranks must not inherit the
// variable that silences it. Where nobody knows the cores, each processor counts as one.
Places read_machine(const ProcessorSet& allowed) {
  constexpr const char* name = "HWLOC_HIDE_ERRORS";
  const bool chosen = getenv(name) != nullptr;
  setenv(name, "2", 0);
  const topology::Topology machine = topology::discover_places({.with_devices = false});
  if (!chosen) unsetenv(name);
  return {node_sets(machine, topology::NodeKind::core, allowed),
          node_sets(machine, topology::NodeKind::numa_node, allowed)};
}

// Rank r of n gets place r·k/n of k: consecutive ranks stay neighbours, each place serves as many
// ranks as any other, give or take one.
CpuBinding spread(const std::vector<ProcessorSet>& places, int ranks) {
  CpuBinding binding;
  for (int rank = 0; rank < ranks; ++rank)
    binding.sets.push_back(
        places[static_cast<std::size_t>(rank) * places.size() / static_cast<std::size_t>(ranks)]);
  return binding;
}

CpuBinding one_core_each(const Places& machine, int ranks) {
  CpuBinding binding;
  for (int rank = 0; rank < ranks; ++rank)
    binding.sets.push_back(machine.cores[static_cast<std::size_t>(rank) % machine.cores.size()]);
  return binding;
}

}  // namespace

Result<CpuBinding> choose_binding(BindingChoice choice, int ranks) {
  if (choice == BindingChoice::none) return CpuBinding{{}, "ranks are not bound, as asked"};
  if (choice == BindingChoice::automatic && ranks == 1)
    return CpuBinding{{}, "a single rank is not bound"};
  GYRE_ASSIGN(const ProcessorSet allowed, topology::allowed_processors());
  const Places machine = read_machine(allowed);
  const int cores = static_cast<int>(machine.cores.size());
  if (choice == BindingChoice::numa) {
    if (machine.nodes.empty())
      return invalid_usage("--bind numa: no NUMA node is known here; use --bind core or none");
    CpuBinding binding = spread(machine.nodes, ranks);
    binding.reason =
        fmt::format("{} ranks over {} NUMA nodes, as asked", ranks, machine.nodes.size());
    return binding;
  }
  if (choice == BindingChoice::automatic && ranks > cores)
    return CpuBinding{{}, fmt::format("ranks are not bound: {} ranks on {} cores", ranks, cores)};
  CpuBinding binding = one_core_each(machine, ranks);
  binding.reason = fmt::format("{} ranks on {} cores, one core each", ranks, cores);
  return binding;
}

}  // namespace gyre::tools
