// Shape: what one row of the table asks of a collective, and how ranks share it.
#pragma once

#include <cstdint>

namespace gyre::bench {

class Traffic;

struct Shape {
  std::uint64_t count = 0;  // elements of the size that was asked for
  std::uint32_t element_bytes = 4;
  int ranks = 1;
  int root = -1;                     // -1: none
  const Traffic* traffic = nullptr;  // of uneven collectives
};

// The elements of each rank where the size is divided among the ranks: whole runs of 16 bytes, as
// nccl-tests divides, so the table may show less than was asked for.
constexpr std::uint64_t equal_share(const Shape& shape) {
  const std::uint64_t unit = 16 / shape.element_bytes;
  return shape.count / static_cast<std::uint64_t>(shape.ranks) / unit * unit;
}

// The factor of collectives where each rank's own share stays where it is (nccl-tests,
// doc/PERFORMANCE.md).
constexpr double without_own_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }
// That of collectives where all data leave or reach one rank, and of point to point (same source).
constexpr double whole_size(int /*ranks*/) { return 1; }

}  // namespace gyre::bench
