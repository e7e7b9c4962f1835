#include "transports/p2p/gpu_route.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace gyre::p2p {
namespace {

constexpr std::string_view path_names[path_count] = {"LOC", "NVL", "PIX",    "PXB",
                                                     "PHB", "SYS", "unknown"};

const RouteReport* find_toward(const Gpu& from, const Gpu& to) {
  const auto found = std::ranges::find(from.toward, to.uuid, &RouteReport::uuid);
  return found != from.toward.end() ? &*found : nullptr;
}

std::string_view why_not(PeerAccess access) {
  switch (access) {
    case PeerAccess::reaches:
      break;
    case PeerAccess::no_peer_access:
      return "the driver finds no path between them (see nvidia-smi topo -p2p rw)";
    case PeerAccess::too_far:
      return "GYRE_P2P_LEVEL excludes the path between them";
    case PeerAccess::disabled:
      return "GYRE_P2P_DISABLE or GYRE_TRANSPORT excludes p2p";
    case PeerAccess::too_far_on_bus:
      return "GYRE_P2P_LEVEL excludes the path that the PCI bus shows between them; the bus does "
             "not show NVLink, and NVML, which does, is missing";
  }
  return "";
}

// Empty, or why `from` cannot.
std::string refusal(const Gpu& from, const Gpu& to) {
  const RouteReport* const toward = find_toward(from, to);
  if (toward == nullptr || toward->access == PeerAccess::reaches) return "";
  return fmt::format("{} cannot reach the memory of {}: {}", from.uuid, to.uuid,
                     why_not(toward->access));
}

}  // namespace

std::string_view path_name(Path path) { return path_names[static_cast<int>(path)]; }

std::optional<Path> path_named(std::string_view name) {
  const auto* const found = std::ranges::find(path_names, name);
  if (found == std::end(path_names)) return std::nullopt;
  return static_cast<Path>(found - std::begin(path_names));
}

std::string_view route_name(GpuRoute way) {
  constexpr std::string_view names[] = {"pointers", "CUDA IPC", "relay"};
  return names[static_cast<int>(way)];
}

bool is_instance(std::string_view uuid) { return uuid.starts_with("MIG-"); }

PairRoute find_route(const Gpu& here, const Gpu& there) {
  PairRoute found;
  if (here.host != there.host) {
    found.reason = fmt::format("{} is on another host than {}", there.uuid, here.uuid);
    return found;
  }
  const GpuRoute way = here.process == there.process ? GpuRoute::pointer : GpuRoute::ipc;
  if (here.uuid == there.uuid) {
    found.way = way;
    found.path = Path::same;
    return found;
  }
  if (is_instance(here.uuid) || is_instance(there.uuid)) {
    found.reason = fmt::format(
        "{} is a MIG instance, and {} is another device: CUDA gives them no access to each other's "
        "memory",
        (is_instance(here.uuid) ? here : there).uuid, (is_instance(here.uuid) ? there : here).uuid);
    return found;
  }
  const RouteReport* const out = find_toward(here, there);
  const RouteReport* const back = find_toward(there, here);
  for (const RouteReport* one : {out, back}) {
    if (one == nullptr) continue;
    found.path = std::min(found.path, one->path);
    found.lanes = std::max(found.lanes, one->lanes);
  }
  found.reason = refusal(here, there);
  if (found.reason.empty()) found.reason = refusal(there, here);
  if (!found.reason.empty()) return found;
  found.way = way;
  if (out == nullptr || back == nullptr)
    found.reason = fmt::format(
        "{} does not see {} (CUDA_VISIBLE_DEVICES), and NVML does not say whether it reaches it: "
        "the "
        "driver will, when memory is opened",
        (out == nullptr ? here : there).uuid, (out == nullptr ? there : here).uuid);
  return found;
}

// From this compute capability on, GPUs of several may be mixed. Below it nobody has tried: NCCL,
// too, wants `minCompCap == maxCompCap` (tuning.cc).
constexpr std::uint32_t mixes_from = 90;

// Of ranks on one GPU, one stands for all.
bool keep_lines_whole(std::span<const Gpu> gpus) {
  std::map<std::string_view, const Gpu*> by_uuid;
  for (const Gpu& gpu : gpus) {
    if (gpu.host != gpus[0].host) return false;
    by_uuid.emplace(gpu.uuid, &gpu);
  }
  for (const auto& [uuid, here] : by_uuid)
    for (const auto& [other, there] : by_uuid) {
      if (uuid == other) continue;
      if (find_route(*here, *there).path > Path::nvlink) return false;
      if (here->capability != there->capability && here->capability < mixes_from) return false;
    }
  return true;
}

std::string path_shown(const PairRoute& between) {
  if (between.lanes == 0) return std::string(path_name(between.path));
  return fmt::format("{}, {} lanes", path_name(between.path), between.lanes);
}

}  // namespace gyre::p2p
