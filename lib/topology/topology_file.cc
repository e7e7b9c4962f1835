#include "lib/topology/topology_file.h"

#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"

#include <fmt/core.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace gyre::topology {
namespace {

Result<std::string> read_text(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return Status::from_errno(fmt::format("reading {}", path), error.value());
  if (bytes > max_xml_bytes)
    return invalid_argument(
        fmt::format("{} has {} bytes; topology files have at most {}", path, bytes, max_xml_bytes));
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return Status::from_errno(fmt::format("reading {}", path), EIO);
  return std::move(text).str();
}

}  // namespace

Result<Topology> read_topology(std::string_view text) {
  GYRE_ASSIGN(const XmlElement root, parse_xml(text));
  if (is_nccl_xml(root)) return read_nccl_xml(root);
  if (is_hwloc_xml(root)) return read_hwloc_xml(root);
  return root.wrong("this is neither hwloc's XML (<topology>) nor NCCL's (<system>)");
}

Result<Topology> read_topology_file(const std::string& path) {
  GYRE_ASSIGN(const std::string text, read_text(path));
  Result<Topology> parsed = read_topology(text);
  if (!parsed.ok()) return std::move(parsed).status().while_doing(path);
  return parsed;
}

}  // namespace gyre::topology
