// Where a CudaExecutor keeps what its kernels read of the host: pinned memory, used again when the
// kernel has ended.
#pragma once

#include "lib/exec/cuda_executor.h"

#include <array>

namespace gyre::exec {

inline constexpr std::size_t places_count = 8;          // kernels on their way that need one
inline constexpr std::uint64_t place_bytes = 32 << 10;  // to begin with
// The device's own words: the sequence of calls, and the blocks that have ended.
inline constexpr std::uint64_t counters_bytes = 256, ended_offset = 128;

struct CudaExecutor::Place {
  std::unique_ptr<PinnedBlock> memory;
  std::uint64_t bytes = 0;
  loaded::CuEvent ended = nullptr;
  bool used = false;
};

struct CudaExecutor::Places {
  std::array<Place, places_count> all;
  std::size_t next = 0;
};

// A launch on its way.
struct CudaExecutor::Going {
  loaded::CuStream stream = nullptr;
  bool captured = false;
  Place* place = nullptr;  // null: all it needs is in its parameters
};

}  // namespace gyre::exec
