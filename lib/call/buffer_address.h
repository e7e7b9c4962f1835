// Where a caller's buffers may lie.
#pragma once

#include <cstdint>

namespace gyre::comm {

// The end of user space on 64-bit machines with 48-bit addresses (x86-64, arm64).
inline constexpr std::uint64_t address_end = 1ULL << 47;
// Where a buffer may begin at most, if it is not null, less one: of null that is more than any.
// Without bytes it may begin anywhere.
constexpr std::uint64_t last_address(std::uint64_t bytes) {
  return bytes > 0 ? address_end - bytes - 1 : UINT64_MAX;
}

}  // namespace gyre::comm
