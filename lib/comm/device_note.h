// DeviceNote: what a rank of a CUDA communicator says of its GPU when it joins, and what all ranks
// make of all notes alike: whether all of them fit on their GPUs at one time (blocks wait for each
// other, so what does not fit would hang; it is refused here, with the numbers), and which way
// leads from GPU to GPU (transports/p2p/way.h).
#pragma once

#include "lib/base/status.h"
#include "lib/exec/cuda_device.h"
#include "transports/p2p/way.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

struct DeviceNote {
  std::string uuid;
  std::uint32_t blocks = 0;         // that the GPU runs at one time
  std::uint32_t connections = 0;    // CUDA_DEVICE_MAX_CONNECTIONS of the process
  std::uint32_t channels = 0;       // the most that this rank's config allows
  std::string bus_id;               // "0000:1b:00.0"
  std::vector<p2p::Toward> toward;  // the other GPUs of its host
};

std::string encode(const DeviceNote& note);
// Nothing if it is malformed.
std::optional<DeviceNote> read_device_note(std::string_view text);

// CUDA_DEVICE_MAX_CONNECTIONS as the driver takes it: streams that do not wait for each other.
std::uint32_t device_connections(const char* variable);

// What each rank may use of its GPU.
struct DeviceShare {
  std::uint32_t blocks = 0;
  std::uint32_t channels = 0;
};
// `notes` and the numbers of their processes, by rank.
Result<DeviceShare> share_devices(std::span<const DeviceNote> notes,
                                  std::span<const std::uint32_t> processes);

}  // namespace gyre::comm
