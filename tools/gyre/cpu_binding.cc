#include "tools/gyre/cpu_binding.h"

#include "lib/base/owned.h"

#include <fmt/format.h>
#ifdef GYRE_HAS_HWLOC
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#endif

#include <cerrno>
#include <cstdlib>

namespace gyre::tools {
namespace {

struct HostTopology {
  std::vector<cpu_set_t> cores;  // of the processors allowed; neighbours side by side
  std::vector<cpu_set_t> nodes;  // NUMA nodes with a processor allowed; empty when unknown
};

Result<cpu_set_t> allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return Status::from_errno("sched_getaffinity", errno);
  return allowed;
}

#ifdef GYRE_HAS_HWLOC

struct TopologyTraits {
  using Handle = hwloc_topology_t;
  static hwloc_topology_t none() { return nullptr; }
  static void close(hwloc_topology_t topology) { hwloc_topology_destroy(topology); }
};

// The sets of all objects of one type, cut to what is allowed.
std::vector<cpu_set_t> object_sets(hwloc_topology_t topology, hwloc_obj_type_t type,
                                   const cpu_set_t& allowed) {
  std::vector<cpu_set_t> sets;
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
    cpu_set_t set;
    CPU_ZERO(&set);
    hwloc_cpuset_to_glibc_sched_affinity(topology, object->cpuset, &set, sizeof set);
    CPU_AND(&set, &set, &allowed);
    if (CPU_COUNT(&set) > 0) sets.push_back(set);
  }
  return sets;
}

// Loads the topology without hwloc's own words on stderr, where a container hides sysfs; ranks must
// not inherit the variable that silences it.
int load_quietly(hwloc_topology_t topology) {
  constexpr const char* name = "HWLOC_HIDE_ERRORS";
  const bool chosen = getenv(name) != nullptr;
  setenv(name, "2", 0);
  const int result = hwloc_topology_load(topology);
  if (!chosen) unsetenv(name);
  return result;
}

Result<HostTopology> ask_hwloc(const cpu_set_t& allowed) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::from_errno("hwloc_topology_init", errno);
  const Owned<TopologyTraits> topology(raw);
  if (load_quietly(topology.get()) != 0) return Status::from_errno("hwloc_topology_load", errno);
  return HostTopology{object_sets(topology.get(), HWLOC_OBJ_CORE, allowed),
                      object_sets(topology.get(), HWLOC_OBJ_NUMANODE, allowed)};
}

#else

Result<HostTopology> ask_hwloc(const cpu_set_t&) { return HostTopology{}; }

#endif

// Where nobody knows the cores, each processor counts as one.
Result<HostTopology> read_machine(const cpu_set_t& allowed) {
  GYRE_ASSIGN(HostTopology machine, ask_hwloc(allowed));
  if (!machine.cores.empty()) return machine;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(i, &set);
    machine.cores.push_back(set);
  }
  return machine;
}

// Rank r of n gets place r·k/n of k: consecutive ranks stay neighbours, each place serves as many
// ranks as any other, give or take one.
CpuBinding spread(const std::vector<cpu_set_t>& places, int ranks) {
  CpuBinding binding;
  for (int rank = 0; rank < ranks; ++rank)
    binding.sets.push_back(
        places[static_cast<std::size_t>(rank) * places.size() / static_cast<std::size_t>(ranks)]);
  return binding;
}

CpuBinding one_core_each(const HostTopology& machine, int ranks) {
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
  GYRE_ASSIGN(const cpu_set_t allowed, allowed_processors());
  GYRE_ASSIGN(const HostTopology machine, read_machine(allowed));
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

std::string processor_list(const cpu_set_t& set) {
  std::string list;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    int last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    list += list.empty() ? "" : ",";
    list += last == i ? fmt::format("{}", i) : fmt::format("{}-{}", i, last);
    i = last;
  }
  return list;
}

}  // namespace gyre::tools
