#include "lib/topology/locality.h"

#include "lib/base/owned.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace gyre::topology {
namespace {

namespace fs = std::filesystem;

struct ProcessorFolderTraits {
  using Handle = DIR*;
  static DIR* none() { return nullptr; }
  static void close(DIR* folder) { (void)::closedir(folder); }
};

// The first number in the file, as lists and single numbers begin with it; -1: there is none.
int first_number(const fs::path& file) {
  std::ifstream stream(file);
  int number = -1;
  stream >> number;
  return stream.fail() || number < 0 ? -1 : number;
}

int numa_node_of(const fs::path& processor) {
  // Not std::filesystem's iterator: where memory runs out it ends the process.
  const Owned<ProcessorFolderTraits> folder(::opendir(processor.c_str()));
  if (!folder.has_value()) return -1;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    int number = -1;
    if (!name.starts_with("node")) continue;
    if (std::from_chars(name.data() + 4, name.data() + name.size(), number).ec == std::errc())
      return number;
  }
  return -1;
}

// The last level that there is.
int cache_of(const fs::path& processor) {
  int found = -1, highest = 1;  // those of the first level are a core's own
  for (int index = 0; index < 8; ++index) {
    const fs::path folder = processor / "cache" / fmt::format("index{}", index);
    const int level = first_number(folder / "level");
    if (level > highest) {
      highest = level;
      found = first_number(folder / "shared_cpu_list");
    }
  }
  return found;
}

Locality place_of_processor(int processor, const std::string& sysfs) {
  const fs::path folder = fmt::format("{}/devices/system/cpu/cpu{}", sysfs, processor);
  return {.package = first_number(folder / "topology/physical_package_id"),
          .numa_node = numa_node_of(folder),
          .cache = cache_of(folder),
          .core = first_number(folder / "topology/thread_siblings_list")};
}

// Numbers that differ are no longer known.
void join(int& one, int other) {
  if (one != other) one = -1;
}

void join(Locality& one, const Locality& other) {
  join(one.package, other.package);
  join(one.numa_node, other.numa_node);
  join(one.cache, other.cache);
  join(one.core, other.core);
}

// Of all processors what they have in common.
template <typename PlaceOf>
Locality common_locality(const ProcessorSet& processors, PlaceOf place_of) {
  std::optional<Locality> place;
  for (const int processor : processors.numbers()) {
    if (place)
      join(*place, place_of(processor));
    else
      place = place_of(processor);
    if (*place == Locality()) break;
  }
  return place.value_or(Locality());
}

// The number of a Locality that is for parts of this kind; null for other kinds.
int* field_of(Locality& place, const TopologyNode& node) {
  switch (node.kind) {
    case NodeKind::package:
      return &place.package;
    case NodeKind::numa_node:
      return &place.numa_node;
    case NodeKind::cache:
      return &place.cache;
    case NodeKind::core:
      return &place.core;
    default:
      return nullptr;
  }
}

int number_of(const TopologyNode& node) {
  const bool by_processor = node.kind == NodeKind::cache || node.kind == NodeKind::core;
  return by_processor ? node.processors.numbers().front() : node.number;
}

auto key_of(const Locality& place) {
  return std::tuple(place.package, place.numa_node, place.cache, place.core);
}

std::optional<int> take_number(std::string_view& text) {
  const std::size_t end = std::min(text.find(','), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  if (word == "-") return -1;
  int number = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || rest != word.data() + word.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

Locality read_locality(const ProcessorSet& processors, const std::string& sysfs) {
  return common_locality(processors,
                         [&](int processor) { return place_of_processor(processor, sysfs); });
}

// A cache lies in those of higher levels, which come before it.
Locality find_locality(const Topology& machine, const ProcessorSet& processors) {
  return common_locality(processors, [&](int processor) {
    Locality place;
    for (const TopologyNode& node : machine.nodes)
      if (int* const number = field_of(place, node);
          number != nullptr && *number < 0 && node.processors.contains(processor))
        *number = number_of(node);
    return place;
  });
}

int find_place(const Topology& machine, const Locality& locality) {
  Locality wanted = locality;
  int found = 0;
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i) {
    const TopologyNode& node = machine.node(i);
    const int* const number = field_of(wanted, node);
    if (number != nullptr && *number >= 0 && !node.processors.empty() && *number == number_of(node))
      found = i;
  }
  return found;
}

std::string encode(const Locality& place) {
  std::string text;
  for (const int number : {place.package, place.numa_node, place.cache, place.core})
    text += (text.empty() ? "" : ",") + (number < 0 ? std::string("-") : std::to_string(number));
  return text;
}

Locality decode_locality(std::string_view text) {
  Locality place;
  for (int* const number : {&place.package, &place.numa_node, &place.cache, &place.core}) {
    if (number != &place.package && text.starts_with(',')) text.remove_prefix(1);
    const std::optional<int> taken = take_number(text);
    if (!taken) return {};
    *number = *taken;
  }
  return text.empty() ? place : Locality();
}

PathClass path_class(const Locality& one, const Locality& other) {
  const auto same = [&](int Locality::*part) { return one.*part >= 0 && one.*part == other.*part; };
  if (same(&Locality::core)) return PathClass::same;
  if (same(&Locality::cache)) return PathClass::cache;
  if (same(&Locality::numa_node)) return PathClass::processor;
  if (same(&Locality::package)) return PathClass::node;
  return one.package >= 0 && other.package >= 0 ? PathClass::interconnect : PathClass::none;
}

std::vector<int> near_order(std::span<const HostedLocality> ranks) {
  std::map<int, int> first_of_host;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    first_of_host.try_emplace(ranks[rank].host, static_cast<int>(rank));
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int rank) {
    const HostedLocality& one = ranks[static_cast<std::size_t>(rank)];
    return std::tuple(first_of_host[one.host], one.bus_id, key_of(one.locality));
  });
  return order;
}

}  // namespace gyre::topology
