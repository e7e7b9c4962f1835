// The pinned memory from which a CudaExecutor's kernels read host data. A place is used again when
// its kernel has ended.
#pragma once

#include "lib/cuda/cuda_device.h"
#include "lib/cuda/cuda_stream.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gyre::exec {

class CudaExecutor;

inline constexpr std::size_t places_count = 8;  // kernels on their way that need one
inline constexpr std::uint64_t min_place_bytes = 128 << 10;
inline constexpr std::uint64_t max_plans = 511;
// The device's own words: the sequence of calls, whether a kernel has given up, the blocks that
// have ended, the launches, and who claims the status of each plan.
inline constexpr std::uint64_t gave_up_offset = 8;
inline constexpr std::uint64_t ended_offset = 128, starts_offset = 192, claims_offset = 256;
inline constexpr std::uint64_t counters_bytes = claims_offset + 4 * (max_plans + 1);
// An executor's pinned memory: the abort word, what kernels show of themselves, a status for each
// plan, and the places.
inline constexpr std::uint64_t progress_offset = 64, status_spacing = 128;
inline constexpr std::uint64_t places_offset = (max_plans + 1) * status_spacing;
// Launches ahead of the device: below a queue's 1,024 for four ranks that share one. A mark after
// every part of them.
inline constexpr std::uint64_t max_launches_ahead = 256;

struct PinnedPlace {
  std::uint64_t bytes = 0;
  std::unique_ptr<PinnedBlock> larger;  // instead of the part of the executor's own block
  loaded::CuEvent ended = nullptr;
  bool used = false;
};

struct PinnedPlaces {
  std::array<PinnedPlace, places_count> all;
  std::size_t next = 0;
};

// Pinned memory from `begin` on.
struct PinnedPart {
  const PinnedBlock& block;
  std::byte* begin = nullptr;
};

// What a graph keeps alive for a launch that it holds.
struct RetainedLaunch {
  std::shared_ptr<CudaExecutor> executor;
  std::unique_ptr<PinnedBlock> memory;  // what the kernel reads of the host, if anything
  std::shared_ptr<const void> mark;     // of the executor: some graph is there
};

// A launch on its way.
struct LaunchInProgress {
  StreamState state;
  PinnedPlace* place = nullptr;  // null: all it needs is in its parameters, or retained
  std::unique_ptr<PinnedBlock> memory;
};

}  // namespace gyre::exec
