// DeviceShare: what each rank of a communicator may use of its GPU: blocks, channels and memory. It
// follows from the notes of all ranks alone (gpu_info.h), so all ranks compute the same. Blocks of
// ranks wait for each other, so they must all run on the GPU at one time, or they would hang. If
// they do not fit, the communicator is refused, with the numbers.
//
// Of the blocks that a GPU runs at one time, those that other communicators hold are taken. Of the
// rest, room for the minimum of eight communicators is kept free, but at most half of the GPU. A
// communicator takes half of what then remains, or as much as its minCTAs needs. So the first
// communicators get the most. Nobody can know which of them are busy at one time, so all are
// counted as busy.
#pragma once

#include "lib/cuda/device_link.h"
#include "lib/device/gpu_info.h"

namespace gyre::comm {

struct DeviceShare {
  std::uint32_t blocks = 0;  // of a rank
  std::uint32_t channels = 0;
};

// What all ranks know of the communicator.
struct DeviceDemand {
  std::uint64_t slot_bytes = 0;  // 0: as the executor likes
  bool relayed = false;          // some pair of ranks
};

// `notes` and the numbers of their processes, by rank.
Result<DeviceShare> share_devices(std::span<const GpuInfo> notes,
                                  std::span<const std::uint32_t> processes,
                                  const DeviceDemand& demand);

// Ranks of the communicator that are beside `rank`, which counts as well.
struct Neighbours {
  int in_process = 0;
  int on_gpu = 0;  // of those
};
Neighbours find_neighbours(std::span<const GpuInfo> notes, std::span<const std::uint32_t> processes,
                           int rank);
// CUDA_LAUNCH_BLOCKING as the environment has it, or null.
Status check_launch_blocking(const char* variable, const Neighbours& beside);

// What a communicator may come to hold, while only this process's part of the story is known.
std::uint32_t estimate_holding(std::uint32_t total, const std::vector<DeviceHolding>& others);
// "3 communicators hold 70 of 124 blocks (1f2e3d4c: 2 ranks, 34; ...)"
std::string shown(const std::vector<DeviceHolding>& holdings, std::uint32_t total);

exec::DeviceShape device_shape(const DeviceShare& share, const DeviceDemand& demand);
// Device memory that a rank takes at once: a link for collectives and one for sends and receives to
// each of `links` ranks, and some for plans and the like.
std::uint64_t device_bytes(const DeviceShare& share, const DeviceDemand& demand, int size,
                           std::uint64_t links);

}  // namespace gyre::comm
