// The 16- and 8-bit float formats: how each widens to float32 and how float32 rounds to it. The one
// definition of both; vector code and the GPU must give these bits for every input. Integer steps
// alone decide, so no rounding mode or flush-to-zero setting of the thread matters.
//
//   code   the bits of a narrow float, right-aligned in 32 bits
#pragma once

#include <cstdint>

// Inlined always: code compiled for a better processor must never be linked in for a lesser one.
#ifdef __CUDACC__
#define GYRE_NARROW __host__ __device__ __forceinline__
#else
#define GYRE_NARROW [[gnu::always_inline]] inline
#endif

namespace gyre::kernels {

struct Float32Bits {
  static constexpr std::uint32_t sign = 0x80000000;
  static constexpr std::uint32_t magnitude = 0x7fffffff;
  static constexpr std::uint32_t infinity = 0x7f800000;
  static constexpr std::uint32_t canonical_nan = 0x7fc00000;
  static constexpr int mantissa_bits = 23;
  static constexpr int bias = 127;
};

// x / 2^shift, rounded to nearest even; x < 2^31, 1 <= shift <= 31.
GYRE_NARROW constexpr std::uint32_t round_shift(std::uint32_t x, int shift) {
  const std::uint32_t odd = (x >> shift) & 1;
  return (x + ((1U << (shift - 1)) - 1) + odd) >> shift;
}

template <int exponent_bits_, int mantissa_bits_, bool has_infinity_, std::uint32_t nan_>
struct NarrowFloat {
  static constexpr int exponent_bits = exponent_bits_;
  static constexpr int mantissa_bits = mantissa_bits_;
  static constexpr bool has_infinity = has_infinity_;
  static constexpr std::uint32_t canonical_nan = nan_;

  static constexpr int sign_shift = exponent_bits + mantissa_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int mantissa_shift = Float32Bits::mantissa_bits - mantissa_bits;
  static constexpr std::uint32_t magnitude = (1U << sign_shift) - 1;
  // The first magnitude that is not a finite number: Inf, or NaN where there is no Inf.
  static constexpr std::uint32_t beyond_finite =
      has_infinity ? magnitude - ((1U << mantissa_bits) - 1) : magnitude;
  // What a code's exponent lacks to be a float32's, and the float32 magnitude of the least normal.
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(Float32Bits::bias - bias)
                                          << mantissa_bits;
  static constexpr std::uint32_t min_normal =
      static_cast<std::uint32_t>(Float32Bits::bias - bias + 1) << Float32Bits::mantissa_bits;

  // Bits of the float32 with the same value. A NaN stays a NaN; its payload may change.
  GYRE_NARROW static constexpr std::uint32_t widen(std::uint32_t code) {
    if constexpr (rebias == 0) return code << mantissa_shift;
    const std::uint32_t sign = (code >> sign_shift) << 31;
    const std::uint32_t size = code & magnitude;
    if (!has_infinity && size == magnitude) return sign | Float32Bits::canonical_nan;
    if (has_infinity && size >= beyond_finite)
      return sign | Float32Bits::infinity | ((size - beyond_finite) << mantissa_shift);
    if (size >= (1U << mantissa_bits)) return sign | ((size + rebias) << mantissa_shift);
    // Subnormal here, normal in float32: an integer of a few bits times a power of two, exactly.
    constexpr std::uint32_t unit_bits =
        static_cast<std::uint32_t>(Float32Bits::bias - bias + 1 - mantissa_bits)
        << Float32Bits::mantissa_bits;
    constexpr float unit = __builtin_bit_cast(float, unit_bits);
    return sign | __builtin_bit_cast(std::uint32_t, static_cast<float>(size) * unit);
  }

  // The code nearest to the float32 of these bits, ties to even.
  GYRE_NARROW static constexpr std::uint32_t narrow(std::uint32_t bits) {
    const std::uint32_t size = bits & Float32Bits::magnitude;
    if (size > Float32Bits::infinity) return canonical_nan;
    const bool as_normal = rebias == 0 || size >= min_normal;
    const std::uint32_t rounded =
        as_normal ? round_shift(size, mantissa_shift) - rebias : narrow_subnormal(size);
    const std::uint32_t sign = (bits >> 31) << sign_shift;
    if (rounded < beyond_finite) return sign | rounded;
    return has_infinity ? sign | beyond_finite : canonical_nan;
  }

 private:
  GYRE_NARROW static constexpr std::uint32_t narrow_subnormal(std::uint32_t size) {
    constexpr std::uint32_t hidden_one = 1U << Float32Bits::mantissa_bits;
    const std::uint32_t exponent = size >> Float32Bits::mantissa_bits;
    const std::uint32_t fraction = size & (hidden_one - 1);
    const std::uint32_t significand = exponent == 0 ? fraction : fraction | hidden_one;
    constexpr int min_exponent = static_cast<int>(min_normal >> Float32Bits::mantissa_bits);
    const int below = min_exponent - (exponent == 0 ? 1 : static_cast<int>(exponent));
    // Beyond 24 places even the largest significand is less than half of the least subnormal.
    const int shift = mantissa_shift + below;
    return shift > 24 ? 0 : round_shift(significand, shift);
  }
};

using Float16 = NarrowFloat<5, 10, true, 0x7e00>;
using BFloat16 = NarrowFloat<8, 7, true, 0x7fc0>;
// OCP 8-bit formats. e4m3 is the "FN" one: no Inf, NaN is all ones, the largest number is 448.
using Float8E4M3 = NarrowFloat<4, 3, false, 0x7f>;
using Float8E5M2 = NarrowFloat<5, 2, true, 0x7f>;

}  // namespace gyre::kernels
