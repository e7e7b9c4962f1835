// Lines of 128 bytes as on a GPU: a store of a line arrives whole; a load is eight loads of 16
// bytes at different times. So a load that finds the flag may still have old data in other parts; a
// load that starts after it has not.
#pragma once

#include "tests/support/host_device/delayed_memory.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace gyre::tests {

inline constexpr std::size_t line_bytes = 128;

class LineMemory {
 public:
  void write(std::byte* place, const std::byte* from);
  // A line of another process's has no past that is known here: its parts are of one time. True if
  // the reader, a warp, sees for the first time that the line has come.
  bool read(std::byte* to, const std::byte* place, std::uint64_t reader, bool torn,
            QuickRandom& random);

 private:
  struct Past {
    std::byte before[line_bytes];
    std::byte written[line_bytes];
    std::vector<std::uint64_t> aware;  // readers that have seen the flag
  };
  std::unordered_map<const std::byte*, Past> past_;
};

}  // namespace gyre::tests
