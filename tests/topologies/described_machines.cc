#include "tests/topologies/described_machines.h"

#include "lib/topology/topology_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gyre::tests {
namespace {

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw std::runtime_error(fmt::format("{} cannot be read", path.native()));
  return std::move(text).str();
}

}  // namespace

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GYRE_MACHINES_FOLDER))
    if (entry.path().extension() == ".xml") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

std::string machine_text(const std::string& name) {
  return read_whole(std::filesystem::path(GYRE_MACHINES_FOLDER) / (name + ".xml"));
}

topology::Topology described_machine(const std::string& name) {
  Result<topology::Topology> made = topology::read_topology(machine_text(name));
  if (!made.ok()) throw std::runtime_error(fmt::format("{}: {}", name, made.status().message()));
  return std::move(made).value();
}

std::string expectation_text(const std::string& name) {
  return read_whole(std::filesystem::path(GYRE_EXPECTATIONS_FOLDER) / (name + ".json"));
}

}  // namespace gyre::tests
