// DeviceNote: what a rank of a CUDA communicator says of its GPU when it joins, and what all ranks
// make of all notes alike: whether all of them fit on their GPUs at one time. Blocks wait for each
// other, so what does not fit would hang; it is refused here, with the numbers.
#pragma once

#include "lib/base/status.h"
#include "lib/exec/cuda_device.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gyre::comm {

struct DeviceNote {
  std::string uuid;
  std::uint32_t blocks = 0;       // that the GPU runs at one time
  std::uint32_t connections = 0;  // CUDA_DEVICE_MAX_CONNECTIONS of the process
  std::uint32_t channels = 0;     // the most that this rank's config allows
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
// `notes` by rank; all of one process.
Result<DeviceShare> share_devices(std::span<const DeviceNote> notes);

}  // namespace gyre::comm
