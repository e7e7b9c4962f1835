// The options of gpu_test's command line besides Catch2's.
#pragma once

#include <cstdint>

namespace gyre::tests {

struct GpuOptions {
  std::uint64_t soak = 1000;            // operations
  std::uint64_t share = 0, shares = 1;  // of the cases of kernels
  bool is_short = false;                // for tools that make everything a hundred times as slow
};
const GpuOptions& gpu_options();

}  // namespace gyre::tests
