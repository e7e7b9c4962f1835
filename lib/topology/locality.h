// Locality: the parts of its host in which a rank runs, by the kernel's own numbers. It is small:
// ranks tell it to each other when they join. near_order puts ranks that are near side by side.
#pragma once

#include "lib/topology/paths.h"
#include "lib/topology/processor_set.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::topology {

// Each is -1 if the rank may run on several of that kind, or nobody knows.
struct Locality {
  int package = -1, numa_node = -1;
  int cache = -1;  // of the last level: the lowest processor that shares it
  int core = -1;   // the lowest processor of it
  friend bool operator==(const Locality&, const Locality&) = default;
};

// Reads the kernel's files about those processors, and asks no library: it takes some 100 us.
Locality read_locality(const ProcessorSet& processors, const std::string& sysfs = "/sys");

// The same of a machine that is known already.
Locality find_locality(const Topology& machine, const ProcessorSet& processors);
// The smallest part of the machine that a locality names; its host if it names none.
int find_place(const Topology& machine, const Locality& locality);

std::string encode(const Locality& place);  // "0,1,8,-"
// Peers' text: all unknown if it is not one.
Locality decode_locality(std::string_view text);

// Of two ranks of one host; `none` where nobody knows.
PathClass path_class(const Locality& one, const Locality& other);

struct HostedLocality {
  int host = 0;  // equal for ranks of one host
  Locality locality;
  std::string bus_id = {};  // of its GPU; empty: it uses host memory
};
// The ranks in an order in which neighbours are near: host by host, as their first ranks are
// numbered; on a host by the GPUs' bus ids, as the kernel and firmware number the PCI tree branch
// by branch and package by package; then by package, NUMA node, cache and core; else by rank.
std::vector<int> near_order(std::span<const HostedLocality> ranks);

}  // namespace gyre::topology
