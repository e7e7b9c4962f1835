// Lanes of AVX-512 (F, BW, DQ, VL), see move_loop.h: 32 registers of 64 bytes, one line each.
#pragma once

#include "kernels/cpu/move_loop.h"
#include "kernels/cpu/narrow_float.h"
#include "kernels/cpu/quotient.h"

#include <cstring>
#include <immintrin.h>
#include <type_traits>

namespace gyre::kernels {
namespace {

struct Avx512 {
  struct Raw {
    __m512i bits;
  };

  // 1 <= bytes <= 64
  static __mmask64 first(std::uint64_t bytes) { return ~std::uint64_t{0} >> (line_bytes - bytes); }
  GYRE_ALWAYS_INLINE static Raw load(const std::byte* place) { return {_mm512_loadu_si512(place)}; }
  GYRE_ALWAYS_INLINE static Raw load_part(const std::byte* place, std::uint64_t bytes) {
    return {_mm512_maskz_loadu_epi8(first(bytes), place)};
  }
  GYRE_ALWAYS_INLINE static void store(std::byte* place, Raw raw) {
    _mm512_storeu_si512(place, raw.bits);
  }
  GYRE_ALWAYS_INLINE static void store_part(std::byte* place, Raw raw, std::uint64_t bytes) {
    _mm512_mask_storeu_epi8(place, first(bytes), raw.bits);
  }
  GYRE_ALWAYS_INLINE static void stream(std::byte* place, Raw raw) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(place), raw.bits);
  }
  GYRE_ALWAYS_INLINE static void fence() { _mm_sfence(); }
};

// What integers of every size share.
struct Bits512 {
  using Machine = Avx512;
  using Register = __m512i;
  using Divisor = std::uint32_t;
  static constexpr bool is_float = false;
  static constexpr bool packs_nan = true;
  static constexpr int parts = 1;
  static constexpr int block_registers = 4;

  static Register bit_and(Register a, Register b) { return _mm512_and_si512(a, b); }
  static Register bit_or(Register a, Register b) { return _mm512_or_si512(a, b); }
  static Register bit_xor(Register a, Register b) { return _mm512_xor_si512(a, b); }
};

// Bytes as they are, for copies and bitwise reductions of any integer.
struct Bytes512 : Bits512 {
  static constexpr std::uint32_t element_size = 1;
  static LineRegisters<Bytes512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<Bytes512> unpack(Avx512::Raw raw) { return {{raw.bits}}; }
  static Avx512::Raw pack(LineRegisters<Bytes512> line) { return {line.part[0]}; }
};

template <typename IntegerLanes>
struct Integer512 : Bits512 {
  static constexpr std::uint32_t element_size = sizeof(IntegerLanes);
  static constexpr bool is_signed = std::is_signed_v<IntegerLanes>;

  static LineRegisters<Integer512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<Integer512> unpack(Avx512::Raw raw) { return {{raw.bits}}; }
  static Avx512::Raw pack(LineRegisters<Integer512> line) { return {line.part[0]}; }

  static Register broadcast(const void* element) {
    IntegerLanes value;
    std::memcpy(&value, element, sizeof value);
    if constexpr (element_size == 1) return _mm512_set1_epi8(static_cast<char>(value));
    if constexpr (element_size == 4) return _mm512_set1_epi32(static_cast<int>(value));
    if constexpr (element_size == 8) return _mm512_set1_epi64(static_cast<long long>(value));
  }
  static Register add(Register a, Register b) {
    if constexpr (element_size == 1) return _mm512_add_epi8(a, b);
    if constexpr (element_size == 4) return _mm512_add_epi32(a, b);
    if constexpr (element_size == 8) return _mm512_add_epi64(a, b);
  }
  static Register multiply(Register a, Register b) {
    if constexpr (element_size == 1) {
      const Register high = _mm512_set1_epi16(static_cast<short>(0xff00));
      const Register even = _mm512_mullo_epi16(a, b);
      const Register odd = _mm512_mullo_epi16(_mm512_srli_epi16(a, 8), _mm512_and_si512(b, high));
      return _mm512_ternarylogic_epi64(high, odd, even, 0xca);  // high ? odd : even
    }
    if constexpr (element_size == 4) return _mm512_mullo_epi32(a, b);
    if constexpr (element_size == 8) return _mm512_mullo_epi64(a, b);
  }
  static Register minimum(Register a, Register b) {
    if constexpr (element_size == 1)
      return is_signed ? _mm512_min_epi8(a, b) : _mm512_min_epu8(a, b);
    if constexpr (element_size == 4)
      return is_signed ? _mm512_min_epi32(a, b) : _mm512_min_epu32(a, b);
    if constexpr (element_size == 8)
      return is_signed ? _mm512_min_epi64(a, b) : _mm512_min_epu64(a, b);
  }
  static Register maximum(Register a, Register b) {
    if constexpr (element_size == 1)
      return is_signed ? _mm512_max_epi8(a, b) : _mm512_max_epu8(a, b);
    if constexpr (element_size == 4)
      return is_signed ? _mm512_max_epi32(a, b) : _mm512_max_epu32(a, b);
    if constexpr (element_size == 8)
      return is_signed ? _mm512_max_epi64(a, b) : _mm512_max_epu64(a, b);
  }
  static LineRegisters<Integer512> divide(LineRegisters<Integer512> line, Divisor divisor) {
    alignas(64) IntegerLanes values[line_bytes / sizeof(IntegerLanes)];
    std::memcpy(values, &line.part[0], sizeof values);
    divide_all(values, divisor);
    std::memcpy(&line.part[0], values, sizeof values);
    return line;
  }
};

// The float32 accumulators of float32 itself and of everything narrower.
struct Accumulators512 {
  using Machine = Avx512;
  using Register = __m512;
  static constexpr bool is_float = true;
  static constexpr bool packs_nan = false;
  static constexpr int block_registers = 4;

  // Division by a power of two is the same rounding of the same number as a product.
  struct Divisor {
    Divisor() = default;
    explicit Divisor(std::uint32_t divisor)
        : is_power((divisor & (divisor - 1)) == 0),
          factor(_mm512_set1_ps(is_power ? 1.0F / static_cast<float>(divisor)
                                         : static_cast<float>(divisor))) {}
    bool is_power = true;
    __m512 factor{};
  };

  static Register add(Register a, Register b) { return _mm512_add_ps(a, b); }
  static Register multiply(Register a, Register b) { return _mm512_mul_ps(a, b); }
  // MINPS gives its second operand for two zeros or a NaN, so both orders together hold all that
  // matters: or'ed, a NaN stays one and -0 wins; for the maximum the sign is and'ed instead.
  static Register minimum(Register a, Register b) {
    return _mm512_or_ps(_mm512_min_ps(a, b), _mm512_min_ps(b, a));
  }
  static Register maximum(Register a, Register b) {
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    const __m512i ab = _mm512_castps_si512(_mm512_max_ps(a, b));
    const __m512i ba = _mm512_castps_si512(_mm512_max_ps(b, a));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(sign, ab, ba, 0x8e));
  }
  static __mmask16 unordered(Register a, Register b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
  }
  static __mmask16 either(__mmask16 a, __mmask16 b) { return _kor_mask16(a, b); }
  static bool any(__mmask16 found) { return found != 0; }
  static Register canonical(Register a) {
    const __m512i nan = _mm512_set1_epi32(static_cast<int>(Float32Bits::canonical_nan));
    return _mm512_mask_mov_ps(a, unordered(a, a), _mm512_castsi512_ps(nan));
  }
  static Register divide_register(Register a, const Divisor& by) {
    return by.is_power ? _mm512_mul_ps(a, by.factor) : _mm512_div_ps(a, by.factor);
  }
};

struct Float32Lanes512 : Accumulators512 {
  static constexpr std::uint32_t element_size = 4;
  static constexpr int parts = 1;

  static LineRegisters<Float32Lanes512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<Float32Lanes512> unpack(Avx512::Raw raw) {
    return {{_mm512_castsi512_ps(raw.bits)}};
  }
  static Avx512::Raw pack(LineRegisters<Float32Lanes512> line) {
    return {_mm512_castps_si512(line.part[0])};
  }
  static Register broadcast(const void* element) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return _mm512_set1_ps(value);
  }
  static LineRegisters<Float32Lanes512> divide(LineRegisters<Float32Lanes512> line,
                                               const Divisor& by) {
    return {{divide_register(line.part[0], by)}};
  }
};

struct Float64Lanes512 {
  using Machine = Avx512;
  using Register = __m512d;
  static constexpr bool is_float = true;
  static constexpr bool packs_nan = false;
  static constexpr int parts = 1;
  static constexpr int block_registers = 4;
  static constexpr std::uint32_t element_size = 8;

  struct Divisor {
    Divisor() = default;
    explicit Divisor(std::uint32_t divisor) : value(_mm512_set1_pd(divisor)) {}
    __m512d value{};
  };

  static LineRegisters<Float64Lanes512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<Float64Lanes512> unpack(Avx512::Raw raw) {
    return {{_mm512_castsi512_pd(raw.bits)}};
  }
  static Avx512::Raw pack(LineRegisters<Float64Lanes512> line) {
    return {_mm512_castpd_si512(line.part[0])};
  }
  static __mmask8 unordered(Register a, Register b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);
  }
  static __mmask8 either(__mmask8 a, __mmask8 b) { return _kor_mask8(a, b); }
  static bool any(__mmask8 found) { return found != 0; }
  static Register canonical(Register a) {
    const __m512i nan = _mm512_set1_epi64(0x7ff8000000000000);
    return _mm512_mask_mov_pd(a, unordered(a, a), _mm512_castsi512_pd(nan));
  }
  static Register broadcast(const void* element) {
    double value;
    std::memcpy(&value, element, sizeof value);
    return _mm512_set1_pd(value);
  }
  static Register add(Register a, Register b) { return _mm512_add_pd(a, b); }
  static Register multiply(Register a, Register b) { return _mm512_mul_pd(a, b); }
  static Register minimum(Register a, Register b) {
    return _mm512_or_pd(_mm512_min_pd(a, b), _mm512_min_pd(b, a));
  }
  static Register maximum(Register a, Register b) {
    const __m512i sign = _mm512_set1_epi64(INT64_MIN);
    const __m512i ab = _mm512_castpd_si512(_mm512_max_pd(a, b));
    const __m512i ba = _mm512_castpd_si512(_mm512_max_pd(b, a));
    return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(sign, ab, ba, 0x8e));
  }
  static LineRegisters<Float64Lanes512> divide(LineRegisters<Float64Lanes512> line,
                                               const Divisor& by) {
    return {{_mm512_div_pd(line.part[0], by.value)}};
  }
};

}  // namespace
}  // namespace gyre::kernels
