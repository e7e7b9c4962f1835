// The expected result of a move, computed one element at a time from the definition of each type in
// wider numbers: integers modulo 2^128, narrow floats by looking up the nearest value of a table.
// Shares no code with kernels/.
#pragma once

#include "lib/base/element.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace gyre::oracle {

__extension__ using Wide = __int128;
__extension__ using WideBits = unsigned __int128;

// The bits of one element, right-aligned.
using Code = std::uint64_t;

inline Code code_at(const void* array, std::uint64_t index, ElementType type) {
  Code code = 0;
  const std::uint32_t size = element_bytes(type);
  std::memcpy(&code, static_cast<const std::byte*>(array) + index * size, size);
  return code;
}

inline bool is_signed_integer(ElementType type) {
  return type == ElementType::int8 || type == ElementType::int32 || type == ElementType::int64;
}

inline Wide integer_value(Code code, ElementType type) {
  const int bits = static_cast<int>(8 * element_bytes(type));
  const bool negative = is_signed_integer(type) && (code >> (bits - 1)) != 0;
  return static_cast<Wide>(code) - (negative ? static_cast<Wide>(1) << bits : 0);
}

inline Code integer_code(Wide value, ElementType type) {
  const std::uint32_t bits = 8 * element_bytes(type);
  const auto low = static_cast<Code>(static_cast<WideBits>(value));
  return bits == 64 ? low : low & ((Code{1} << bits) - 1);
}

struct NarrowShape {
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  Code nan;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline NarrowShape narrow_shape(ElementType type) {
  switch (type) {
    case ElementType::float16:
      return {5, 10, true, 0x7e00};
    case ElementType::bfloat16:
      return {8, 7, true, 0x7fc0};
    case ElementType::float8_e4m3:
      return {4, 3, false, 0x7f};
    default:
      return {5, 2, true, 0x7f};
  }
}

inline bool is_narrow(ElementType type) {
  return is_float(type) && type != ElementType::float32 && type != ElementType::float64;
}

// As the format's definition has it: sign, 1.fraction (0.fraction below the first exponent).
inline double narrow_value(Code code, const NarrowShape& shape) {
  const int bias = (1 << (shape.exponent_bits - 1)) - 1;
  const int exponent =
      static_cast<int>(code >> shape.mantissa_bits) & ((1 << shape.exponent_bits) - 1);
  const int fraction = static_cast<int>(code) & ((1 << shape.mantissa_bits) - 1);
  const double sign = (code >> (shape.bits() - 1)) != 0 ? -1.0 : 1.0;
  const bool last_exponent = exponent == (1 << shape.exponent_bits) - 1;
  if (last_exponent && shape.has_infinity)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (last_exponent && fraction == (1 << shape.mantissa_bits) - 1) return std::nan("");
  const int hidden = exponent == 0 ? 0 : 1 << shape.mantissa_bits;
  return sign * std::ldexp(hidden + fraction, std::max(exponent, 1) - bias - shape.mantissa_bits);
}

// All finite magnitudes of a format, ascending, which is the order of their codes; then the one
// that would follow if the format went on: from the middle to it, numbers are too large.
inline const std::vector<double>& magnitudes(ElementType type) {
  const auto make = [](ElementType of) {
    const NarrowShape shape = narrow_shape(of);
    std::vector<double> values;
    for (Code code = 0; std::isfinite(narrow_value(code, shape)); ++code)
      values.push_back(narrow_value(code, shape));
    values.push_back(2 * values.back() - values[values.size() - 2]);
    return values;
  };
  static const std::vector<double> tables[] = {
      make(ElementType::float16), make(ElementType::bfloat16), make(ElementType::float8_e4m3),
      make(ElementType::float8_e5m2)};
  switch (type) {
    case ElementType::float16:
      return tables[0];
    case ElementType::bfloat16:
      return tables[1];
    case ElementType::float8_e4m3:
      return tables[2];
    default:
      return tables[3];
  }
}

inline Code narrow_code(double value, ElementType type) {
  const NarrowShape shape = narrow_shape(type);
  if (std::isnan(value)) return shape.nan;
  const std::vector<double>& values = magnitudes(type);
  const double size = std::fabs(value);
  const auto above = std::upper_bound(values.begin(), values.end(), size);
  Code code = static_cast<Code>(above - values.begin()) - 1;
  if (above != values.end()) {
    const double below_gap = size - values[code];
    const double above_gap = *above - size;
    if (below_gap > above_gap || (below_gap == above_gap && (code & 1) != 0)) ++code;
  }
  if (code + 1 >= values.size()) {  // rounded to what the format does not have
    if (!shape.has_infinity) return shape.nan;
    code = values.size() - 1;
  }
  return code | (std::signbit(value) ? Code{1} << (shape.bits() - 1) : 0);
}

// A float element as a double, exactly; and a result rounded once to the type.
inline double float_value(Code code, ElementType type) {
  if (type == ElementType::float64) return __builtin_bit_cast(double, code);
  if (type == ElementType::float32)
    return static_cast<double>(__builtin_bit_cast(float, static_cast<std::uint32_t>(code)));
  return narrow_value(code, narrow_shape(type));
}

inline Code float_code(double value, ElementType type) {
  if (type == ElementType::float64)
    return std::isnan(value) ? 0x7ff8000000000000 : __builtin_bit_cast(Code, value);
  if (type == ElementType::float32)
    return std::isnan(value) ? 0x7fc00000
                             : __builtin_bit_cast(std::uint32_t, static_cast<float>(value));
  return narrow_code(value, type);
}

// One operation in float32, by way of float64: a double has more than twice a float's digits and
// two, so that rounding twice is rounding once (Figueroa 1995). float64 itself is taken as it is.
inline double rounded(double value, ElementType type) {
  return type == ElementType::float64 ? value : static_cast<double>(static_cast<float>(value));
}

inline double combine_float(double a, double b, ReduceOp op, ElementType type) {
  const bool is_min = op == ReduceOp::min;
  switch (op) {
    case ReduceOp::prod:
      return rounded(a * b, type);
    case ReduceOp::min:
    case ReduceOp::max:
      if (std::isnan(a) || std::isnan(b)) return std::nan("");
      if (a == b) return std::signbit(a) == is_min ? a : b;
      return (a < b) == is_min ? a : b;
    default:
      return rounded(a + b, type);
  }
}

inline Wide combine_integer(Wide a, Wide b, ReduceOp op) {
  const auto wrap = [](WideBits bits) { return static_cast<Wide>(bits); };
  switch (op) {
    case ReduceOp::prod:
      return wrap(static_cast<WideBits>(a) * static_cast<WideBits>(b));
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    default:
      return wrap(static_cast<WideBits>(a) + static_cast<WideBits>(b));
  }
}

struct Adjustment {
  int pre_source = -1;
  Code pre_scalar = 0;
  std::uint32_t divisor = 1;
};

inline Code reduce_floats(const std::vector<Code>& codes, ElementType type, ReduceOp op,
                          const Adjustment& adjust) {
  double sum = 0;
  for (std::size_t s = 0; s < codes.size(); ++s) {
    double value = float_value(codes[s], type);
    if (static_cast<int>(s) == adjust.pre_source)
      value = rounded(value * float_value(adjust.pre_scalar, type), type);
    sum = s == 0 ? value : combine_float(sum, value, op, type);
  }
  if (adjust.divisor != 1) {
    const double divisor = rounded(adjust.divisor, type);
    sum = rounded(sum / divisor, type);
  }
  return float_code(sum, type);
}

inline Code reduce_integers(const std::vector<Code>& codes, ElementType type, ReduceOp op,
                            const Adjustment& adjust) {
  Wide sum = 0;
  for (std::size_t s = 0; s < codes.size(); ++s) {
    Wide value = integer_value(codes[s], type);
    if (static_cast<int>(s) == adjust.pre_source)
      value = combine_integer(value, integer_value(adjust.pre_scalar, type), ReduceOp::prod);
    sum = s == 0 ? value : combine_integer(sum, value, op);
  }
  const Code wrapped = integer_code(sum, type);
  return integer_code(integer_value(wrapped, type) / static_cast<Wide>(adjust.divisor), type);
}

// The element that a move over these elements must give.
inline Code reduce(const std::vector<Code>& codes, ElementType type, ReduceOp op,
                   const Adjustment& adjust) {
  const bool is_copy = codes.size() == 1 && adjust.pre_source < 0 && adjust.divisor == 1;
  if (is_copy) return codes[0];
  return is_float(type) ? reduce_floats(codes, type, op, adjust)
                        : reduce_integers(codes, type, op, adjust);
}

}  // namespace gyre::oracle
