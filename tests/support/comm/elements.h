// Elements of any type for tests: made from a hash, read as wide numbers, reduced by a reference
// that shares no code with the kernels but the definition of the narrow formats.
#pragma once

#include "kernels/cpu/narrow_float.h"
#include "lib/base/element.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace gyre::tests {

inline std::uint64_t hashed(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL + rank * 0xbf58476d1ce4e5b9ULL + index;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

inline float widened(ElementType type, std::uint32_t code) {
  switch (type) {
    case ElementType::float16:
      return std::bit_cast<float>(kernels::Float16::widen(code));
    case ElementType::bfloat16:
      return std::bit_cast<float>(kernels::BFloat16::widen(code));
    case ElementType::float8_e4m3:
      return std::bit_cast<float>(kernels::Float8E4M3::widen(code));
    default:
      return std::bit_cast<float>(kernels::Float8E5M2::widen(code));
  }
}

inline std::uint32_t narrowed(ElementType type, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  switch (type) {
    case ElementType::float16:
      return kernels::Float16::narrow(bits);
    case ElementType::bfloat16:
      return kernels::BFloat16::narrow(bits);
    case ElementType::float8_e4m3:
      return kernels::Float8E4M3::narrow(bits);
    default:
      return kernels::Float8E5M2::narrow(bits);
  }
}

inline void put(ElementType type, std::byte* place, double value, std::uint64_t integer) {
  const auto store = [&](auto typed) { std::memcpy(place, &typed, sizeof typed); };
  if (type == ElementType::float64) return store(value);
  if (type == ElementType::float32) return store(static_cast<float>(value));
  if (is_float(type) && element_bytes(type) == 2)
    return store(static_cast<std::uint16_t>(narrowed(type, static_cast<float>(value))));
  if (is_float(type))
    return store(static_cast<std::uint8_t>(narrowed(type, static_cast<float>(value))));
  std::memcpy(place, &integer, element_bytes(type));
}

// Integers of all sizes; floats near 1, of both signs.
inline void make_element(ElementType type, std::byte* place, std::uint64_t hash) {
  const double size = 0.5 + static_cast<double>(hash >> 40) / static_cast<double>(1 << 24);
  put(type, place, (hash & 1) != 0 ? size : -size, hash >> 3);
}

inline double as_double(ElementType type, const std::byte* place) {
  const auto load = [&](auto typed) { return std::memcpy(&typed, place, sizeof typed), typed; };
  if (type == ElementType::float64) return load(double{});
  if (type == ElementType::float32) return static_cast<double>(load(float{}));
  if (element_bytes(type) == 2) return static_cast<double>(widened(type, load(std::uint16_t{})));
  return static_cast<double>(widened(type, load(std::uint8_t{})));
}

inline bool is_signed(ElementType type) {
  return type == ElementType::int8 || type == ElementType::int32 || type == ElementType::int64;
}

// Sign- or zero-extended to 64 bits.
inline std::uint64_t as_integer(ElementType type, const std::byte* place) {
  std::uint64_t value = 0;
  const std::uint32_t bits = element_bytes(type) * 8;
  std::memcpy(&value, place, element_bytes(type));
  if (is_signed(type) && bits < 64 && (value >> (bits - 1) & 1) != 0) value |= ~0ULL << bits;
  return value;
}

inline double unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::float64:
      return 0x1p-53;
    case ElementType::float32:
      return 0x1p-24;
    case ElementType::float16:
      return 0x1p-11;
    case ElementType::bfloat16:
      return 0x1p-8;
    case ElementType::float8_e4m3:
      return 0x1p-4;
    default:
      return 0x1p-3;
  }
}

// Whether `got` is op over `operands` (one element of each rank), within what n roundings can do:
// (n + 1) u sum|x| for sums (Higham, Accuracy and Stability, 4.2), (2 n) u relative for products.
bool is_reduction(ElementType type, ReduceOp op, std::span<const std::byte* const> operands,
                  double scale, const std::byte* got);

}  // namespace gyre::tests
