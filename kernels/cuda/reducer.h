// Arithmetic on 16 bytes of elements, with the bits of kernels/cpu/move.h. Nothing here knows where
// operands come from. Types that differ only in their sign share a class: their wrapping sums and
// products are the same. A comparison flips the sign bit, and a quotient checks the sign.
#pragma once

#include "kernels/cpu/narrow_float.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"

#include <cstring>

namespace gyre::cuda {

template <typename To, typename From>
GYRE_DEVICE To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// What a step does to a value besides combining it.
struct Arithmetic {
  ReduceOp op = ReduceOp::sum;
  bool is_signed = false;
  std::uint64_t scalar = 0;
  std::uint32_t divisor = 1;
};

template <typename Bits>
struct IntegerElement {
  using Stored = Bits;
  using Wide = Bits;
  using Wrapping = std::conditional_t<sizeof(Bits) == 8, std::uint64_t, std::uint32_t>;

  GYRE_DEVICE static Wide widen(Stored stored) { return stored; }
  GYRE_DEVICE static Stored narrow(Wide value) { return value; }
  GYRE_DEVICE static Wide add(Wide a, Wide b) {
    return static_cast<Wide>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
  GYRE_DEVICE static Wide multiply(Wide a, Wide b) {
    return static_cast<Wide>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
  GYRE_DEVICE static Wide extreme(Wide a, Wide b, const Arithmetic& how) {
    const Wide flip =
        how.is_signed ? static_cast<Wide>(Wide{1} << (8 * sizeof(Wide) - 1)) : Wide{0};
    const bool less = static_cast<Wide>(a ^ flip) < static_cast<Wide>(b ^ flip);
    return less == (how.op == ReduceOp::min) ? a : b;
  }
  GYRE_DEVICE static Wide divide(Wide a, const Arithmetic& how) {
    if (!how.is_signed) return static_cast<Wide>(a / static_cast<std::uint64_t>(how.divisor));
    const auto value = static_cast<std::int64_t>(static_cast<std::make_signed_t<Wide>>(a));
    return static_cast<Wide>(value / static_cast<std::int64_t>(how.divisor));
  }
};

template <typename Float, typename Bits, Bits canonical_nan>
struct FloatElement {
  using Stored = Float;
  using Wide = Float;

  GYRE_DEVICE static Float nan() { return same_bits<Float>(canonical_nan); }
  GYRE_DEVICE static bool negative(Float a) {
    return (same_bits<Bits>(a) >> (8 * sizeof(Bits) - 1)) != 0;
  }
  GYRE_DEVICE static Wide widen(Stored stored) { return stored; }
  GYRE_DEVICE static Stored narrow(Wide value) { return value == value ? value : nan(); }
  GYRE_DEVICE static Wide add(Wide a, Wide b) { return a + b; }
  GYRE_DEVICE static Wide multiply(Wide a, Wide b) { return a * b; }
  GYRE_DEVICE static Wide extreme(Wide a, Wide b, const Arithmetic& how) {
    if (a != a || b != b) return nan();
    const bool least = how.op == ReduceOp::min;
    if (a == b) return negative(a) == least ? a : b;  // equal, or zeros of either sign
    return (a < b) == least ? a : b;
  }
  GYRE_DEVICE static Wide divide(Wide a, const Arithmetic& how) {
    return a / static_cast<Float>(how.divisor);
  }
};

using Float32 = FloatElement<float, std::uint32_t, 0x7fc00000>;
using Float64 = FloatElement<double, std::uint64_t, 0x7ff8000000000000>;

struct Float16 : Float32 {
  using Stored = std::uint16_t;
  GYRE_DEVICE static float widen(Stored code) { return device::widen_float16(code); }
  GYRE_DEVICE static Stored narrow(float value) { return device::narrow_float16(value); }
};
struct BFloat16 : Float32 {
  using Stored = std::uint16_t;
  GYRE_DEVICE static float widen(Stored code) { return device::widen_bfloat16(code); }
  GYRE_DEVICE static Stored narrow(float value) { return device::narrow_bfloat16(value); }
};
template <typename Format>
struct Float8 : Float32 {
  using Stored = std::uint8_t;
  GYRE_DEVICE static float widen(Stored code) { return same_bits<float>(Format::widen(code)); }
  GYRE_DEVICE static Stored narrow(float value) {
    return static_cast<Stored>(Format::narrow(same_bits<std::uint32_t>(value)));
  }
};
using Float8E4M3 = Float8<kernels::Float8E4M3>;
using Float8E5M2 = Float8<kernels::Float8E5M2>;
using Bits8 = IntegerElement<std::uint8_t>;
using Bits32 = IntegerElement<std::uint32_t>;
using Bits64 = IntegerElement<std::uint64_t>;

struct Sum {  // avg and pre_mul_sum too
  template <typename E, typename T>
  GYRE_DEVICE static T apply(T a, T b, const Arithmetic&) {
    return E::add(a, b);
  }
};
struct Product {
  template <typename E, typename T>
  GYRE_DEVICE static T apply(T a, T b, const Arithmetic&) {
    return E::multiply(a, b);
  }
};
struct Extreme {  // min and max
  template <typename E, typename T>
  GYRE_DEVICE static T apply(T a, T b, const Arithmetic& how) {
    return E::extreme(a, b, how);
  }
};
struct Bitwise {  // of Bits64, whatever the type
  template <typename E, typename T>
  GYRE_DEVICE static T apply(T a, T b, const Arithmetic& how) {
    if (how.op == ReduceOp::band) return a & b;
    return how.op == ReduceOp::bor ? a | b : a ^ b;
  }
};

template <typename Element, typename Op>
struct Reducer {
  using ElementType = Element;
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;
  static constexpr std::uint32_t elements = 16 / sizeof(Stored);
  static constexpr bool adjusts = std::is_same_v<Op, Sum>;

  struct Codes {
    Stored at[elements];
  };
  struct Value {
    Wide at[elements];
  };

  GYRE_DEVICE static Value widen(const Bytes16& bytes) {
    const Codes codes = same_bits<Codes>(bytes);
    Value value;
    GYRE_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i) value.at[i] = Element::widen(codes.at[i]);
    return value;
  }

  GYRE_DEVICE static void combine(Value& value, const Bytes16& bytes, const Arithmetic& how) {
    const Codes codes = same_bits<Codes>(bytes);
    GYRE_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i)
      value.at[i] = Op::template apply<Element>(value.at[i], Element::widen(codes.at[i]), how);
  }

  // The own input times the scalar, rounded to the type, as peers receive theirs.
  GYRE_DEVICE static Bytes16 scaled(const Bytes16& bytes, const Arithmetic& how) {
    Codes codes = same_bits<Codes>(bytes);
    Stored code;
    memcpy(&code, &how.scalar, sizeof code);
    const Wide factor = Element::widen(code);
    GYRE_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i)
      codes.at[i] = Element::narrow(Element::multiply(Element::widen(codes.at[i]), factor));
    return same_bits<Bytes16>(codes);
  }

  GYRE_DEVICE static Bytes16 narrow(Value& value, const Arithmetic& how) {
    Codes codes;
    GYRE_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i) {
      if (adjusts && how.divisor != 1) value.at[i] = Element::divide(value.at[i], how);
      codes.at[i] = Element::narrow(value.at[i]);
    }
    return same_bits<Bytes16>(codes);
  }
};

}  // namespace gyre::cuda
