// AVX2 lanes of the 16- and 8-bit floats. Accumulators are float32, so a line is four or eight
// registers. Elements are dealt to the registers by their place in a 16- or 32-bit word, which
// needs shifts and few permutations. The bits are those of narrow_float.h for every input.
#pragma once

#include "kernels/cpu/lanes_avx2.h"

namespace gyre::kernels {
namespace {

template <typename Format>
GYRE_ALWAYS_INLINE __m256 broadcast_narrow(const void* element, std::uint32_t element_size) {
  std::uint32_t code = 0;
  std::memcpy(&code, element, element_size);  // little endian
  return _mm256_set1_ps(__builtin_bit_cast(float, Format::widen(code)));
}

template <typename Lanes>
GYRE_ALWAYS_INLINE LineRegisters<Lanes> divide_line(LineRegisters<Lanes> line,
                                                    const typename Lanes::Divisor& by) {
  GYRE_UNROLLED
  for (auto& part : line.part) part = Lanes::divide_register(part, by);
  return line;
}

GYRE_ALWAYS_INLINE __m256i splat(std::uint32_t bits) {
  return _mm256_set1_epi32(static_cast<int>(bits));
}

struct Float16Lanes256 : Accumulators256 {
  static constexpr std::uint32_t element_size = 2;
  static constexpr int parts = 4;

  static LineRegisters<Float16Lanes256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<Float16Lanes256> unpack(Avx2::Raw raw) {
    return {{_mm256_cvtph_ps(_mm256_castsi256_si128(raw.half[0])),
             _mm256_cvtph_ps(_mm256_extracti128_si256(raw.half[0], 1)),
             _mm256_cvtph_ps(_mm256_castsi256_si128(raw.half[1])),
             _mm256_cvtph_ps(_mm256_extracti128_si256(raw.half[1], 1))}};
  }
  static Avx2::Raw pack(LineRegisters<Float16Lanes256> line) {
    return {{narrow(line.part[0], line.part[1]), narrow(line.part[2], line.part[3])}};
  }
  static Register broadcast(const void* element) { return broadcast_narrow<Float16>(element, 2); }
  static LineRegisters<Float16Lanes256> divide(LineRegisters<Float16Lanes256> line,
                                               const Divisor& by) {
    return divide_line(line, by);
  }

 private:
  static __m256i narrow(Register low, Register high) {
    return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct BFloat16Lanes256 : Accumulators256 {
  static constexpr std::uint32_t element_size = 2;
  static constexpr int parts = 4;  // even elements, odd elements of each half

  static LineRegisters<BFloat16Lanes256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<BFloat16Lanes256> unpack(Avx2::Raw raw) {
    return {{even(raw.half[0]), odd(raw.half[0]), even(raw.half[1]), odd(raw.half[1])}};
  }
  static Avx2::Raw pack(LineRegisters<BFloat16Lanes256> line) {
    return {{join(line.part[0], line.part[1]), join(line.part[2], line.part[3])}};
  }
  static Register broadcast(const void* element) { return broadcast_narrow<BFloat16>(element, 2); }
  static LineRegisters<BFloat16Lanes256> divide(LineRegisters<BFloat16Lanes256> line,
                                                const Divisor& by) {
    return divide_line(line, by);
  }

 private:
  static Register even(__m256i words) { return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)); }
  static Register odd(__m256i words) {
    return _mm256_castsi256_ps(_mm256_and_si256(words, splat(0xffff0000)));
  }
  static __m256i join(Register even, Register odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(rounded(even), 16), rounded(odd), 0xaa);
  }
  // The result in the high half of each 32 bits; what is in the low half is of no account.
  static __m256i rounded(Register value) {
    const __m256i bits = _mm256_castps_si256(canonical(value));
    const __m256i odd_place = _mm256_and_si256(_mm256_srli_epi32(bits, 16), splat(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, splat(0x7fff)), odd_place);
  }
};

// Both 8-bit formats widen by way of the float16 of the same bits: e5m2 is its upper byte; e4m3's
// exponent lies one place lower and means 2^8 more.
template <typename Format>
struct Float8Lanes256 : Accumulators256 {
  static constexpr std::uint32_t element_size = 1;
  static constexpr int parts = 8;  // of each half: even and odd bytes, first low then high 16 bytes
  static constexpr bool is_e4m3 = !Format::has_infinity;
  static constexpr bool packs_nan = true;

  static LineRegisters<Float8Lanes256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<Float8Lanes256> unpack(Avx2::Raw raw) {
    LineRegisters<Float8Lanes256> line;
    GYRE_UNROLLED
    for (int h = 0; h < 2; ++h) {
      const __m256i even = halves(_mm256_slli_epi16(raw.half[h], 8));
      const __m256i odd = halves(raw.half[h]);
      line.part[4 * h] = widen(_mm256_castsi256_si128(even));
      line.part[4 * h + 1] = widen(_mm256_castsi256_si128(odd));
      line.part[4 * h + 2] = widen(_mm256_extracti128_si256(even, 1));
      line.part[4 * h + 3] = widen(_mm256_extracti128_si256(odd, 1));
    }
    return line;
  }
  static Avx2::Raw pack(LineRegisters<Float8Lanes256> line) {
    Avx2::Raw raw;
    GYRE_UNROLLED
    for (int h = 0; h < 2; ++h) {
      const __m256i low = join(narrow(line.part[4 * h]), narrow(line.part[4 * h + 1]));
      const __m256i high = join(narrow(line.part[4 * h + 2]), narrow(line.part[4 * h + 3]));
      // PACKUSDW works within 16 bytes each; the permutation puts its quarters in order.
      raw.half[h] = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    }
    return raw;
  }
  static Register broadcast(const void* element) { return broadcast_narrow<Format>(element, 1); }
  static LineRegisters<Float8Lanes256> divide(LineRegisters<Float8Lanes256> line,
                                              const Divisor& by) {
    return divide_line(line, by);
  }

 private:
  // The upper byte of each 16 bits as a float16.
  static __m256i halves(__m256i words) {
    if constexpr (is_e4m3) {
      const __m256i exponent = _mm256_set1_epi16(0x3f80);
      const __m256i bits = _mm256_and_si256(_mm256_srai_epi16(words, 1),
                                            _mm256_set1_epi16(static_cast<short>(0xbf80)));
      const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(bits, exponent), exponent);
      return _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
    } else {
      return _mm256_and_si256(words, _mm256_set1_epi16(static_cast<short>(0xff00)));
    }
  }
  static Register widen(__m128i half) {
    const Register value = _mm256_cvtph_ps(half);
    return is_e4m3 ? _mm256_mul_ps(value, _mm256_set1_ps(256.0F)) : value;
  }
  static __m256i join(__m256i even, __m256i odd) {
    return _mm256_or_si256(even, _mm256_slli_epi32(odd, 8));
  }

  // The code of each value in 32 bits. Normal results are rounded as integers; subnormal ones by
  // adding a float whose last place is the least subnormal, so that the sum's last bits are them.
  // Magnitudes are below 2^31, so that signed comparisons do.
  static __m256i narrow(Register value) {
    constexpr int shift = Format::mantissa_shift;
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i size = _mm256_and_si256(bits, splat(Float32Bits::magnitude));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, shift), splat(1));
    const __m256i half = splat((1U << (shift - 1)) - 1 - (Format::rebias << shift));
    const __m256i normal =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(size, half), odd), shift);
    const __m256i unit = splat(Format::min_normal +
                               (static_cast<std::uint32_t>(shift) << Float32Bits::mantissa_bits));
    const __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(unit));
    const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(shifted), unit);
    const __m256i small = _mm256_cmpgt_epi32(splat(Format::min_normal), size);
    __m256i code = _mm256_blendv_epi8(normal, subnormal, small);
    code = _mm256_min_epu32(code, splat(Format::beyond_finite));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), splat(0x80));
    // A NaN is written without its sign: for e4m3 that is whatever is not finite.
    const __m256i nan = is_e4m3 ? _mm256_cmpeq_epi32(code, splat(Format::beyond_finite))
                                : _mm256_cmpgt_epi32(size, splat(Float32Bits::infinity));
    return _mm256_blendv_epi8(_mm256_or_si256(code, sign), splat(Format::canonical_nan), nan);
  }
};

}  // namespace
}  // namespace gyre::kernels
