// Integer division of a wrapped sum by the number of ranks, for whole cache lines. It is written so
// that compilers turn the 8- and 32-bit forms into vector code, which has no integer division.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gyre::kernels {

// value / divisor, truncated to zero, the divisor taken as it is (300 divides any int8 to 0).
// A quotient that is no integer is at least 1 / divisor away from the next one. The float's error
// is less than that as long as |value| < 2^mantissa_bits, so that truncation gives the exact
// result; for the 8-bit types that needs float32 (24 bits), for the 32-bit types float64 (53).
template <typename IntegerLanes>
[[gnu::always_inline]] inline IntegerLanes quotient(IntegerLanes value, std::uint32_t divisor) {
  if constexpr (sizeof(IntegerLanes) == 1) {
    const float ratio = static_cast<float>(value) / static_cast<float>(divisor);
    return static_cast<IntegerLanes>(static_cast<std::int32_t>(ratio));
  } else if constexpr (sizeof(IntegerLanes) == 4) {
    const double ratio = static_cast<double>(value) / static_cast<double>(divisor);
    return static_cast<IntegerLanes>(ratio);
  } else {
    return value / static_cast<IntegerLanes>(divisor);
  }
}

template <typename IntegerLanes, std::size_t count>
[[gnu::always_inline]] inline void divide_all(IntegerLanes (&values)[count],
                                              std::uint32_t divisor) {
  for (std::size_t i = 0; i < count; ++i) values[i] = quotient(values[i], divisor);
}

}  // namespace gyre::kernels
