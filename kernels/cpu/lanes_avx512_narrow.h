// AVX-512 lanes of the 16- and 8-bit floats. Accumulators are float32, so a line is two or four
// registers. Elements are dealt to the registers by their place in a 16- or 32-bit word, which
// needs shifts and no permutation. The bits are those of narrow_float.h for every input.
#pragma once

#include "kernels/cpu/lanes_avx512.h"

namespace gyre::kernels {
namespace {

template <typename Format>
GYRE_ALWAYS_INLINE __m512 broadcast_narrow(const void* element, std::uint32_t element_size) {
  std::uint32_t code = 0;
  std::memcpy(&code, element, element_size);  // little endian
  return _mm512_set1_ps(__builtin_bit_cast(float, Format::widen(code)));
}

template <typename Lanes>
GYRE_ALWAYS_INLINE LineRegisters<Lanes> divide_line(LineRegisters<Lanes> line,
                                                    const typename Lanes::Divisor& by) {
  GYRE_UNROLLED
  for (auto& part : line.part) part = Lanes::divide_register(part, by);
  return line;
}

struct Float16Lanes512 : Accumulators512 {
  static constexpr std::uint32_t element_size = 2;
  static constexpr int parts = 2;

  // From memory in halves, as a conversion takes half a register.
  static LineRegisters<Float16Lanes512> load(const std::byte* place) {
    const auto* halves = reinterpret_cast<const __m256i*>(place);
    return {{_mm512_cvtph_ps(_mm256_loadu_si256(halves)),
             _mm512_cvtph_ps(_mm256_loadu_si256(halves + 1))}};
  }
  static LineRegisters<Float16Lanes512> unpack(Avx512::Raw raw) {
    return {{_mm512_cvtph_ps(_mm512_castsi512_si256(raw.bits)),
             _mm512_cvtph_ps(_mm512_extracti64x4_epi64(raw.bits, 1))}};
  }
  static Avx512::Raw pack(LineRegisters<Float16Lanes512> line) {
    constexpr int nearest_even = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256i low = _mm512_cvtps_ph(line.part[0], nearest_even);
    const __m256i high = _mm512_cvtps_ph(line.part[1], nearest_even);
    return {_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
  }
  static Register broadcast(const void* element) { return broadcast_narrow<Float16>(element, 2); }
  static LineRegisters<Float16Lanes512> divide(LineRegisters<Float16Lanes512> line,
                                               const Divisor& by) {
    return divide_line(line, by);
  }
};

struct BFloat16Lanes512 : Accumulators512 {
  static constexpr std::uint32_t element_size = 2;
  static constexpr int parts = 2;  // even elements, odd elements

  static LineRegisters<BFloat16Lanes512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<BFloat16Lanes512> unpack(Avx512::Raw raw) {
    const __m512i odd = _mm512_and_si512(raw.bits, high_half());
    return {{_mm512_castsi512_ps(_mm512_slli_epi32(raw.bits, 16)), _mm512_castsi512_ps(odd)}};
  }
  // Upper and lower halves are gathered first, so that one rounding does for both registers: up if
  // the lower half is above 0x8000, or is that and the upper one odd.
  static Avx512::Raw pack(LineRegisters<BFloat16Lanes512> line) {
    const __m512i even = _mm512_castps_si512(line.part[0]);
    const __m512i odd = _mm512_castps_si512(line.part[1]);
    const __m512i upper = choose_high(odd, _mm512_srli_epi32(even, 16));
    const __m512i lower = choose_high(_mm512_slli_epi32(odd, 16), even);
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i tie = _mm512_set1_epi16(INT16_MIN);
    // The least lower half that rounds up: tie | (~upper & 1).
    const __m512i least = _mm512_ternarylogic_epi32(upper, one, tie, 0xae);
    const __mmask32 up = _mm512_cmpge_epu16_mask(lower, least);
    return {_mm512_mask_add_epi16(upper, up, upper, one)};
  }
  static Register broadcast(const void* element) { return broadcast_narrow<BFloat16>(element, 2); }
  static LineRegisters<BFloat16Lanes512> divide(LineRegisters<BFloat16Lanes512> line,
                                                const Divisor& by) {
    return divide_line(line, by);
  }

 private:
  static __m512i high_half() { return _mm512_set1_epi32(static_cast<int>(0xffff0000)); }
  static __m512i choose_high(__m512i high, __m512i low) {
    return _mm512_ternarylogic_epi32(high_half(), high, low, 0xca);
  }
};

// Both 8-bit formats widen by way of the float16 of the same bits: e5m2 is its upper byte; e4m3's
// exponent lies one place lower and means 2^8 more.
template <typename Format>
struct Float8Lanes512 : Accumulators512 {
  static constexpr std::uint32_t element_size = 1;
  static constexpr int parts = 4;  // even and odd bytes of the low half, of the high half
  static constexpr bool is_e4m3 = !Format::has_infinity;
  static constexpr bool packs_nan = true;

  static LineRegisters<Float8Lanes512> load(const std::byte* place) {
    return unpack(Avx512::load(place));
  }
  static LineRegisters<Float8Lanes512> unpack(Avx512::Raw raw) {
    const __m512i even = halves(_mm512_slli_epi16(raw.bits, 8));
    const __m512i odd = halves(raw.bits);
    return {{widen(_mm512_castsi512_si256(even)), widen(_mm512_castsi512_si256(odd)),
             widen(_mm512_extracti64x4_epi64(even, 1)), widen(_mm512_extracti64x4_epi64(odd, 1))}};
  }
  static Avx512::Raw pack(LineRegisters<Float8Lanes512> line) {
    const __m512i low = join(narrow(line.part[0]), narrow(line.part[1]));
    const __m512i high = join(narrow(line.part[2]), narrow(line.part[3]));
    // PACKUSDW works within 16 bytes each; the permutation puts its eighths in order.
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return {_mm512_permutexvar_epi64(order, _mm512_packus_epi32(low, high))};
  }
  static Register broadcast(const void* element) { return broadcast_narrow<Format>(element, 1); }
  static LineRegisters<Float8Lanes512> divide(LineRegisters<Float8Lanes512> line,
                                              const Divisor& by) {
    return divide_line(line, by);
  }

 private:
  // The upper byte of each 16 bits as a float16.
  static __m512i halves(__m512i words) {
    if constexpr (is_e4m3) {
      const __m512i exponent = _mm512_set1_epi16(0x3f80);
      const __m512i bits = _mm512_and_si512(_mm512_srai_epi16(words, 1),
                                            _mm512_set1_epi16(static_cast<short>(0xbf80)));
      const __mmask32 nan =
          _mm512_cmpeq_epi16_mask(_mm512_and_si512(bits, exponent), exponent);  // all ones
      return _mm512_mask_mov_epi16(bits, nan, _mm512_set1_epi16(0x7e00));
    } else {
      return _mm512_and_si512(words, _mm512_set1_epi16(static_cast<short>(0xff00)));
    }
  }
  static __m512 widen(__m256i half) {
    const __m512 value = _mm512_cvtph_ps(half);
    return is_e4m3 ? _mm512_mul_ps(value, _mm512_set1_ps(256.0F)) : value;
  }
  static __m512i join(__m512i even, __m512i odd) {
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 8));
  }

  // The code of each value in 32 bits. Normal results are rounded as integers; subnormal ones by
  // adding a float whose last place is the least subnormal, so that the sum's last bits are them.
  static __m512i narrow(Register value) {
    constexpr int shift = Format::mantissa_shift;
    constexpr auto splat = [](std::uint32_t bits) {
      return _mm512_set1_epi32(static_cast<int>(bits));
    };
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i size = _mm512_and_si512(bits, splat(Float32Bits::magnitude));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(size, shift), splat(1));
    const __m512i half = splat((1U << (shift - 1)) - 1 - (Format::rebias << shift));
    const __m512i normal =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(size, half), odd), shift);
    const __m512i unit = splat(Format::min_normal +
                               (static_cast<std::uint32_t>(shift) << Float32Bits::mantissa_bits));
    const __m512 shifted = _mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(unit));
    const __m512i subnormal = _mm512_sub_epi32(_mm512_castps_si512(shifted), unit);
    const __mmask16 small = _mm512_cmplt_epu32_mask(size, splat(Format::min_normal));
    __m512i code = _mm512_mask_mov_epi32(normal, small, subnormal);
    code = _mm512_min_epu32(code, splat(Format::beyond_finite));
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), splat(0x80));
    // A NaN is written without its sign: for e4m3 that is whatever is not finite.
    const __mmask16 number = is_e4m3 ? _mm512_cmplt_epu32_mask(code, splat(Format::beyond_finite))
                                     : _mm512_cmple_epu32_mask(size, splat(Float32Bits::infinity));
    code = _mm512_mask_or_epi32(splat(Format::canonical_nan), number, code, sign);
    return code;
  }
};

}  // namespace
}  // namespace gyre::kernels
