// Elements: the bits of one element of each type, and the data of a run: each rank's input is a
// function of (seed, rank, index), so that every rank can compute every other's. No reduction is
// done here; check.cc does it.
//
//   Recipe   everything that determines the inputs of one call
#pragma once

#include "lib/base/element.h"

#include <cstdint>
#include <cstring>

namespace gyre::bench {

struct Recipe {
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t seed = 0;
};

// Elements [first, first + count) of `rank`'s input.
void fill_inputs(const Recipe& recipe, int rank, std::uint64_t first, std::uint64_t count,
                 void* out);

// The factor of `rank` in a pre-multiplied sum, as bits of the type: 1 to 4 for integers; 1, 1.25,
// 1.5 or 1.75 for floats, which every type holds exactly and which makes most products round.
std::uint64_t factor_bits(ElementType type, int rank);

// An IEEE-like binary format. e4m3 (OCP 8-bit) has no infinity: only an all-ones magnitude is NaN.
template <typename BitsType, int exponent_bits, int mantissa_bits, bool has_infinity>
struct FloatFormat {
  using Bits = BitsType;
  static constexpr int mantissa = mantissa_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr std::uint64_t exponent_mask = (1ULL << exponent_bits) - 1;
  static constexpr std::uint64_t mantissa_mask = (1ULL << mantissa_bits) - 1;
  static constexpr bool infinity = has_infinity;

  // sign * significand * 2^exponent with significand in [1, 2).
  static constexpr Bits make(bool negative, int exponent, std::uint64_t fraction) {
    return static_cast<Bits>(
        (static_cast<std::uint64_t>(negative) << (exponent_bits + mantissa_bits)) |
        (static_cast<std::uint64_t>(exponent + bias) << mantissa_bits) |
        (fraction & mantissa_mask));
  }
  // Exact: every format here is a subset of double.
  static double decode(Bits bits);
  static double largest();
  static double smallest_subnormal();
};

using Half = FloatFormat<std::uint16_t, 5, 10, true>;
using Bfloat16 = FloatFormat<std::uint16_t, 8, 7, true>;
using Float8E4M3 = FloatFormat<std::uint8_t, 4, 3, false>;
using Float8E5M2 = FloatFormat<std::uint8_t, 5, 2, true>;
using Float32 = FloatFormat<std::uint32_t, 8, 23, true>;
using Float64 = FloatFormat<std::uint64_t, 11, 52, true>;

template <typename BitsType, int exponent_bits, int mantissa_bits, bool has_infinity>
double FloatFormat<BitsType, exponent_bits, mantissa_bits, has_infinity>::decode(Bits bits) {
  const auto wide = static_cast<std::uint64_t>(bits);
  const std::uint64_t fraction = wide & mantissa_mask;
  const std::uint64_t exponent = (wide >> mantissa_bits) & exponent_mask;
  const std::uint64_t sign = (wide >> (exponent_bits + mantissa_bits)) << 63;
  constexpr int shift = 52 - mantissa_bits;
  std::uint64_t image = 0;
  if (exponent_bits == 11) {
    image = wide;
  } else if (exponent == 0) {
    const double magnitude = static_cast<double>(fraction) * smallest_subnormal();
    std::memcpy(&image, &magnitude, sizeof image);
    image |= sign;
  } else if (exponent == exponent_mask && (has_infinity || fraction == mantissa_mask)) {
    image = sign | (0x7ffULL << 52) | (has_infinity ? fraction << shift : 1ULL << 51);
  } else {
    image =
        sign | ((exponent + 1023 - static_cast<std::uint64_t>(bias)) << 52) | (fraction << shift);
  }
  double value = 0;
  std::memcpy(&value, &image, sizeof value);
  return value;
}

template <typename BitsType, int exponent_bits, int mantissa_bits, bool has_infinity>
double FloatFormat<BitsType, exponent_bits, mantissa_bits, has_infinity>::largest() {
  // All-ones exponent is for infinity and NaN, or for numbers up to all but the last fraction.
  constexpr std::uint64_t top = has_infinity ? exponent_mask - 1 : exponent_mask;
  constexpr std::uint64_t fraction = has_infinity ? mantissa_mask : mantissa_mask - 1;
  return decode(make(false, static_cast<int>(top) - bias, fraction));
}

template <typename BitsType, int exponent_bits, int mantissa_bits, bool has_infinity>
double FloatFormat<BitsType, exponent_bits, mantissa_bits, has_infinity>::smallest_subnormal() {
  return __builtin_ldexp(1.0, 1 - bias - mantissa_bits);
}

// Calls visitor.template operator()<Format>() for a float type, <UnsignedBits, is_signed> for an
// integer type.
template <typename FloatVisitor, typename IntegerVisitor>
decltype(auto) visit_type(ElementType type, FloatVisitor&& of_float, IntegerVisitor&& of_integer) {
  switch (type) {
    case ElementType::int8:
      return of_integer.template operator()<std::int8_t>();
    case ElementType::uint8:
      return of_integer.template operator()<std::uint8_t>();
    case ElementType::int32:
      return of_integer.template operator()<std::int32_t>();
    case ElementType::uint32:
      return of_integer.template operator()<std::uint32_t>();
    case ElementType::int64:
      return of_integer.template operator()<std::int64_t>();
    case ElementType::uint64:
      return of_integer.template operator()<std::uint64_t>();
    case ElementType::float16:
      return of_float.template operator()<Half>();
    case ElementType::float64:
      return of_float.template operator()<Float64>();
    case ElementType::bfloat16:
      return of_float.template operator()<Bfloat16>();
    case ElementType::float8_e4m3:
      return of_float.template operator()<Float8E4M3>();
    case ElementType::float8_e5m2:
      return of_float.template operator()<Float8E5M2>();
    case ElementType::float32:
      break;
  }
  return of_float.template operator()<Float32>();
}

// 64 random bits for (seed, rank, index): the finalizer of splitmix64 (Steele, Lea, Flood 2014)
// over a counter, with a key for each (seed, rank).
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}
constexpr std::uint64_t input_key(std::uint64_t seed, int rank) {
  return mix_bits(mix_bits(seed + 0x9e3779b97f4a7c15ULL) + static_cast<std::uint64_t>(rank));
}
constexpr std::uint64_t input_bits(std::uint64_t key, std::uint64_t index) {
  return mix_bits(key + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

// Every magnitude from 1/8 to 2 for sums, so that operands meet at different exponents; 1/2 to 2
// for products, so that many factors neither overflow nor vanish. Never NaN, infinite or zero.
template <typename Format>
constexpr typename Format::Bits float_input(ReduceOp op, std::uint64_t random) {
  const int exponent = op == ReduceOp::prod ? -static_cast<int>((random >> 60) & 1)
                                            : -static_cast<int>((random >> 60) & 3);
  return Format::make((random >> 63) != 0, exponent, random);
}

// All values; odd for products, which stay odd instead of vanishing; mostly ones or mostly zeros
// where an and or an or would otherwise lose every bit.
template <typename Integer>
constexpr Integer integer_input(ReduceOp op, std::uint64_t random) {
  const std::uint64_t second = random * 0x9e3779b97f4a7c15ULL;
  std::uint64_t bits = random;
  if (op == ReduceOp::prod) bits |= 1;
  if (op == ReduceOp::band) bits |= second | (second >> 32);
  if (op == ReduceOp::bor) bits &= second & (second >> 32);
  return static_cast<Integer>(bits);
}

}  // namespace gyre::bench
