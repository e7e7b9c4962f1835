// GpuInfo: a rank's description of its GPU when it joins a CUDA communicator. From the notes of all
// ranks, every rank computes the same: how much each may use of its GPU (device_share.h), and the
// route from GPU to GPU (transports/p2p/gpu_route.h).
#pragma once

#include "lib/base/status.h"
#include "lib/device/device_holdings.h"
#include "transports/p2p/gpu_route.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

struct GpuInfo {
  std::string uuid;
  std::uint32_t blocks = 0;              // that the GPU runs at one time
  std::uint32_t connections = 0;         // CUDA_DEVICE_MAX_CONNECTIONS of the process
  std::uint32_t channels = 0;            // the most that this rank's config allows
  std::uint32_t min_channels = 1;        // and what it asks for, as far as there is room
  std::uint32_t free_mib = 0;            // of the GPU's memory
  std::uint32_t capability = 0;          // compute capability: 90 for sm_90
  std::string bus_id;                    // "0000:1b:00.0"
  std::vector<DeviceHolding> held;       // by other communicators of its process
  std::vector<p2p::RouteReport> toward;  // the other GPUs of its host
};

std::string encode(const GpuInfo& note);
// Nothing if it is malformed.
std::optional<GpuInfo> read_gpu_info(std::string_view text);

// CUDA_DEVICE_MAX_CONNECTIONS as the driver takes it: streams that do not wait for each other. A
// client of MPS has fewer where it is not set (the MPS manual, Environment Variables).
std::uint32_t device_connections(const char* variable, bool by_mps);

}  // namespace gyre::comm
