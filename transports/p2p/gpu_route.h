// GpuRoute: the route between the GPUs of two ranks and the reason for it, from facts that all
// ranks know alike. Each rank's join info says what it found out about the other GPUs of its host
// (`RouteReport`).
//
//   pointer   one process: memory is where it is
//   ipc       processes of one host: memory is exported and imported
//   relay     kernels cannot reach each other; the reason says why
#pragma once

#include "lib/trust/identity.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::p2p {

// What lies between two GPUs, nearest first; NCCL's names for the same.
enum class Path : std::uint8_t {
  same,          // LOC: one GPU
  nvlink,        // NVL
  one_switch,    // PIX: one PCIe switch
  switches,      // PXB: several PCIe switches, no host bridge
  host_bridge,   // PHB
  interconnect,  // SYS: between the processors of the host
  unknown,
};
inline constexpr int path_count = 7;
std::string_view path_name(Path path);  // "NVL"
std::optional<Path> path_named(std::string_view name);

// Whether kernels of a GPU can use the memory of another, as its process knows.
enum class PeerAccess : std::uint8_t {
  reaches,
  no_peer_access,  // the driver finds no way
  too_far,         // GYRE_P2P_LEVEL leaves it out
  disabled,        // GYRE_P2P_DISABLE or GYRE_TRANSPORT
  too_far_on_bus,  // GYRE_P2P_LEVEL, by what the PCI bus shows; NVLink may be there as well
};
inline constexpr int access_count = 5;

// What a process says of the way from its GPU to another of its host.
struct RouteReport {
  std::string uuid;
  PeerAccess access = PeerAccess::reaches;
  Path path = Path::unknown;
  std::uint32_t lanes = 0;  // of NVLink
  friend bool operator==(const RouteReport&, const RouteReport&) = default;
};

// One rank's GPU as all know it.
struct Gpu {
  trust::Token host{}, process{};
  std::string uuid, bus_id;
  std::vector<RouteReport> toward;
  std::uint32_t capability = 0;  // compute capability: 90 for sm_90; 0: not known
};

enum class GpuRoute : std::uint8_t { pointer, ipc, relay };
std::string_view route_name(GpuRoute way);

struct PairRoute {
  GpuRoute way = GpuRoute::relay;
  Path path = Path::unknown;
  std::uint32_t lanes = 0;
  std::string reason;  // why kernels cannot reach each other; or who could not say whether they can
};

// Whether it is an instance of a GPU that is cut in parts: what its UUID says.
bool is_instance(std::string_view uuid);
// The same from both ends, but for the names in the reason.
PairRoute find_route(const Gpu& here, const Gpu& there);
// Whether stores of 128 bytes between any two of them arrive whole, as ll128 needs: on one GPU, and
// over NVLink; before sm_90, between GPUs of one compute capability alone. The same for all ranks.
bool keep_lines_whole(std::span<const Gpu> gpus);
// "NVL, 18 lanes".
std::string path_shown(const PairRoute& between);

}  // namespace gyre::p2p
