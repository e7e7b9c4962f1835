#include "transports/p2p/bus.h"

#include "lib/base/settings.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

namespace gyre::p2p {
namespace {

constexpr std::int64_t max_nodes = 4096;

// "pci0000:00", and the devices from there on, the last of them the one that is asked about.
struct BusPlace {
  std::string_view bridge;
  std::vector<std::string_view> devices;
};

bool is_bus_id(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isxdigit(c) != 0 || c == ':' || c == '.';
  });
}

BusPlace place_of(std::string_view path) {
  BusPlace place;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view word = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (word.starts_with("pci") && is_bus_id(word.substr(3))) {
      place.bridge = word;
      place.devices.clear();
    } else if (!place.bridge.empty()) {
      if (!is_bus_id(word)) return {};
      place.devices.push_back(word);
    }
  }
  return place;
}

int numa_node(const std::filesystem::path& device) {
  std::ifstream file(device / "numa_node");
  std::string text;
  std::getline(file, text);
  const auto node = parse_integer(text, no_numa_node, max_nodes);
  return node.ok() ? static_cast<int>(*node) : no_numa_node;
}

}  // namespace

Path path_between(std::string_view here, std::string_view there, int here_node, int there_node) {
  const BusPlace a = place_of(here), b = place_of(there);
  if (a.devices.empty() || b.devices.empty()) return Path::unknown;
  if (a.bridge != b.bridge) {
    // As NVML has it: bridges of one NUMA node are as near as one.
    if (here_node == no_numa_node || there_node == no_numa_node) return Path::unknown;
    return here_node == there_node ? Path::host_bridge : Path::interconnect;
  }
  const auto [end_a, end_b] = std::ranges::mismatch(a.devices, b.devices);
  const auto shared = end_a - a.devices.begin();
  if (shared == 0) return Path::host_bridge;
  // What is left under the last device that both are behind: a port of its switch, and the GPU.
  const auto left = std::max(a.devices.end() - end_a, b.devices.end() - end_b);
  return left <= 2 ? Path::one_switch : Path::switches;
}

Path path_on_bus(const std::string& sysfs, std::string_view here, std::string_view there) {
  const auto find = [&](std::string_view id) {
    std::string name(id);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::error_code missing;
    return is_bus_id(name) ? std::filesystem::canonical(sysfs + "/bus/pci/devices/" + name, missing)
                           : std::filesystem::path();
  };
  const std::filesystem::path a = find(here), b = find(there);
  return path_between(a.native(), b.native(), numa_node(a), numa_node(b));
}

}  // namespace gyre::p2p
