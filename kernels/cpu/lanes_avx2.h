// Lanes of AVX2, see move_loop.h: 16 registers of 32 bytes, so a line is two registers at least.
#pragma once

#include "kernels/cpu/move_loop.h"
#include "kernels/cpu/narrow_float.h"
#include "kernels/cpu/quotient.h"

#include <cstring>
#include <immintrin.h>
#include <type_traits>

namespace gyre::kernels {
namespace {

struct Avx2 {
  struct Raw {
    __m256i half[2];
  };

  static __m256i* halves(void* place) { return static_cast<__m256i*>(place); }
  static const __m256i* halves(const void* place) { return static_cast<const __m256i*>(place); }
  GYRE_ALWAYS_INLINE static Raw load(const void* place) {
    return {{_mm256_loadu_si256(halves(place)), _mm256_loadu_si256(halves(place) + 1)}};
  }
  GYRE_ALWAYS_INLINE static void store(void* place, Raw raw) {
    _mm256_storeu_si256(halves(place), raw.half[0]);
    _mm256_storeu_si256(halves(place) + 1, raw.half[1]);
  }
  // The bytes behind them are zero. A wide load of what was just stored by narrow ones waits until
  // they have left the store buffer, so whole words are loaded where they lie.
  GYRE_ALWAYS_INLINE static Raw load_part(const void* place, std::uint64_t bytes) {
    if (bytes == line_bytes) return load(place);
    constexpr std::uint64_t word = 4, half = line_bytes / 2;
    if (bytes % word == 0) {
      const auto words = static_cast<int>(bytes / word);
      return {{load_words(halves(place), words),
               bytes > half ? load_words(halves(place) + 1, words - 8) : _mm256_setzero_si256()}};
    }
    alignas(line_bytes) std::byte line[line_bytes] = {};
    std::memcpy(line, place, bytes);
    return load(line);
  }
  GYRE_ALWAYS_INLINE static void store_part(void* place, Raw raw, std::uint64_t bytes) {
    if (bytes == line_bytes) return store(place, raw);
    if (bytes == 8)
      return _mm_storel_epi64(static_cast<__m128i*>(place), _mm256_castsi256_si128(raw.half[0]));
    alignas(line_bytes) std::byte line[line_bytes];
    store(line, raw);
    std::memcpy(place, line, bytes);
  }
  GYRE_ALWAYS_INLINE static void stream(void* place, Raw raw) {
    _mm256_stream_si256(halves(place), raw.half[0]);
    _mm256_stream_si256(halves(place) + 1, raw.half[1]);
  }
  GYRE_ALWAYS_INLINE static void fence() { _mm_sfence(); }

 private:
  // The first so many of eight; the others are zero, and are not read.
  GYRE_ALWAYS_INLINE static __m256i load_words(const __m256i* place, int count) {
    const __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(place),
                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(count), number));
  }
};

// What integers of every size share.
struct Bits256 {
  using Machine = Avx2;
  using Register = __m256i;
  using Divisor = std::uint32_t;
  static constexpr bool is_float = false;
  static constexpr bool packs_nan = true;
  static constexpr int parts = 2;
  static constexpr int block_registers = 4;

  static Register bit_and(Register a, Register b) { return _mm256_and_si256(a, b); }
  static Register bit_or(Register a, Register b) { return _mm256_or_si256(a, b); }
  static Register bit_xor(Register a, Register b) { return _mm256_xor_si256(a, b); }
};

// Bytes as they are, for copies and bitwise reductions of any integer.
struct Bytes256 : Bits256 {
  static constexpr std::uint32_t element_size = 1;
  static LineRegisters<Bytes256> load(const std::byte* place) { return unpack(Avx2::load(place)); }
  static LineRegisters<Bytes256> unpack(Avx2::Raw raw) { return {{raw.half[0], raw.half[1]}}; }
  static Avx2::Raw pack(LineRegisters<Bytes256> line) { return {{line.part[0], line.part[1]}}; }
};

template <typename IntegerLanes>
struct Integer256 : Bits256 {
  static constexpr std::uint32_t element_size = sizeof(IntegerLanes);
  static constexpr bool is_signed = std::is_signed_v<IntegerLanes>;

  static LineRegisters<Integer256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<Integer256> unpack(Avx2::Raw raw) { return {{raw.half[0], raw.half[1]}}; }
  static Avx2::Raw pack(LineRegisters<Integer256> line) { return {{line.part[0], line.part[1]}}; }

  static Register broadcast(const void* element) {
    IntegerLanes value;
    std::memcpy(&value, element, sizeof value);
    if constexpr (element_size == 1) return _mm256_set1_epi8(static_cast<char>(value));
    if constexpr (element_size == 4) return _mm256_set1_epi32(static_cast<int>(value));
    if constexpr (element_size == 8) return _mm256_set1_epi64x(static_cast<long long>(value));
  }
  static Register add(Register a, Register b) {
    if constexpr (element_size == 1) return _mm256_add_epi8(a, b);
    if constexpr (element_size == 4) return _mm256_add_epi32(a, b);
    if constexpr (element_size == 8) return _mm256_add_epi64(a, b);
  }
  static Register multiply(Register a, Register b) {
    if constexpr (element_size == 1) {
      const Register low = _mm256_set1_epi16(0xff);
      const Register even = _mm256_and_si256(_mm256_mullo_epi16(a, b), low);
      return _mm256_or_si256(
          even, _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_andnot_si256(low, b)));
    }
    if constexpr (element_size == 4) return _mm256_mullo_epi32(a, b);
    if constexpr (element_size == 8) {
      // (ah 2^32 + al)(bh 2^32 + bl) = ((ah bl + al bh) mod 2^32) 2^32 + al bl, modulo 2^64
      const Register cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32(b, 0xb1));
      const Register high = _mm256_add_epi32(cross, _mm256_shuffle_epi32(cross, 0xb1));
      return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(high, 32));
    }
  }
  static Register minimum(Register a, Register b) {
    if constexpr (element_size == 1)
      return is_signed ? _mm256_min_epi8(a, b) : _mm256_min_epu8(a, b);
    if constexpr (element_size == 4)
      return is_signed ? _mm256_min_epi32(a, b) : _mm256_min_epu32(a, b);
    if constexpr (element_size == 8) return _mm256_blendv_epi8(a, b, greater(a, b));
  }
  static Register maximum(Register a, Register b) {
    if constexpr (element_size == 1)
      return is_signed ? _mm256_max_epi8(a, b) : _mm256_max_epu8(a, b);
    if constexpr (element_size == 4)
      return is_signed ? _mm256_max_epi32(a, b) : _mm256_max_epu32(a, b);
    if constexpr (element_size == 8) return _mm256_blendv_epi8(b, a, greater(a, b));
  }
  static LineRegisters<Integer256> divide(LineRegisters<Integer256> line, Divisor divisor) {
    alignas(line_bytes) IntegerLanes values[line_bytes / sizeof(IntegerLanes)];
    std::memcpy(values, line.part, sizeof values);
    divide_all(values, divisor);
    std::memcpy(line.part, values, sizeof values);
    return line;
  }

 private:
  static Register greater(Register a, Register b) {
    const Register flip = _mm256_set1_epi64x(is_signed ? 0 : INT64_MIN);
    return _mm256_cmpgt_epi64(_mm256_xor_si256(a, flip), _mm256_xor_si256(b, flip));
  }
};

// The float32 accumulators of float32 itself and of everything narrower.
struct Accumulators256 {
  using Machine = Avx2;
  using Register = __m256;
  static constexpr bool is_float = true;
  static constexpr bool packs_nan = false;
  static constexpr int block_registers = 4;

  // Division by a power of two is the same rounding of the same number as a product.
  struct Divisor {
    Divisor() = default;
    explicit Divisor(std::uint32_t divisor)
        : is_power((divisor & (divisor - 1)) == 0),
          factor(_mm256_set1_ps(is_power ? 1.0F / static_cast<float>(divisor)
                                         : static_cast<float>(divisor))) {}
    bool is_power = true;
    __m256 factor{};
  };

  static Register add(Register a, Register b) { return _mm256_add_ps(a, b); }
  static Register multiply(Register a, Register b) { return _mm256_mul_ps(a, b); }
  // MINPS gives its second operand for two zeros or a NaN, so both orders together hold all that
  // matters: or'ed, a NaN stays one and -0 wins; for the maximum the sign is and'ed instead.
  static Register minimum(Register a, Register b) {
    return _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
  }
  static Register maximum(Register a, Register b) {
    const Register ab = _mm256_max_ps(a, b);
    const Register ba = _mm256_max_ps(b, a);
    const Register magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), _mm256_or_ps(ab, ba));
    return _mm256_or_ps(_mm256_and_ps(ab, ba), magnitude);
  }
  static Register unordered(Register a, Register b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
  static Register either(Register a, Register b) { return _mm256_or_ps(a, b); }
  static bool any(Register found) { return _mm256_movemask_ps(found) != 0; }
  static Register canonical(Register a) {
    const __m256i nan = _mm256_set1_epi32(static_cast<int>(Float32Bits::canonical_nan));
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(nan), unordered(a, a));
  }
  static Register divide_register(Register a, const Divisor& by) {
    return by.is_power ? _mm256_mul_ps(a, by.factor) : _mm256_div_ps(a, by.factor);
  }
};

struct Float32Lanes256 : Accumulators256 {
  static constexpr std::uint32_t element_size = 4;
  static constexpr int parts = 2;

  static LineRegisters<Float32Lanes256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<Float32Lanes256> unpack(Avx2::Raw raw) {
    return {{_mm256_castsi256_ps(raw.half[0]), _mm256_castsi256_ps(raw.half[1])}};
  }
  static Avx2::Raw pack(LineRegisters<Float32Lanes256> line) {
    return {{_mm256_castps_si256(line.part[0]), _mm256_castps_si256(line.part[1])}};
  }
  static Register broadcast(const void* element) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return _mm256_set1_ps(value);
  }
  static LineRegisters<Float32Lanes256> divide(LineRegisters<Float32Lanes256> line,
                                               const Divisor& by) {
    return {{divide_register(line.part[0], by), divide_register(line.part[1], by)}};
  }
};

struct Float64Lanes256 {
  using Machine = Avx2;
  using Register = __m256d;
  static constexpr bool is_float = true;
  static constexpr bool packs_nan = false;
  static constexpr int parts = 2;
  static constexpr int block_registers = 4;
  static constexpr std::uint32_t element_size = 8;

  struct Divisor {
    Divisor() = default;
    explicit Divisor(std::uint32_t divisor) : value(_mm256_set1_pd(divisor)) {}
    __m256d value{};
  };

  static LineRegisters<Float64Lanes256> load(const std::byte* place) {
    return unpack(Avx2::load(place));
  }
  static LineRegisters<Float64Lanes256> unpack(Avx2::Raw raw) {
    return {{_mm256_castsi256_pd(raw.half[0]), _mm256_castsi256_pd(raw.half[1])}};
  }
  static Avx2::Raw pack(LineRegisters<Float64Lanes256> line) {
    return {{_mm256_castpd_si256(line.part[0]), _mm256_castpd_si256(line.part[1])}};
  }
  static Register broadcast(const void* element) {
    double value;
    std::memcpy(&value, element, sizeof value);
    return _mm256_set1_pd(value);
  }
  static Register unordered(Register a, Register b) { return _mm256_cmp_pd(a, b, _CMP_UNORD_Q); }
  static Register either(Register a, Register b) { return _mm256_or_pd(a, b); }
  static bool any(Register found) { return _mm256_movemask_pd(found) != 0; }
  static Register canonical(Register a) {
    const __m256i nan = _mm256_set1_epi64x(0x7ff8000000000000);
    return _mm256_blendv_pd(a, _mm256_castsi256_pd(nan), unordered(a, a));
  }
  static Register add(Register a, Register b) { return _mm256_add_pd(a, b); }
  static Register multiply(Register a, Register b) { return _mm256_mul_pd(a, b); }
  static Register minimum(Register a, Register b) {
    return _mm256_or_pd(_mm256_min_pd(a, b), _mm256_min_pd(b, a));
  }
  static Register maximum(Register a, Register b) {
    const Register ab = _mm256_max_pd(a, b);
    const Register ba = _mm256_max_pd(b, a);
    const Register magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), _mm256_or_pd(ab, ba));
    return _mm256_or_pd(_mm256_and_pd(ab, ba), magnitude);
  }
  static LineRegisters<Float64Lanes256> divide(LineRegisters<Float64Lanes256> line,
                                               const Divisor& by) {
    return {{_mm256_div_pd(line.part[0], by.value), _mm256_div_pd(line.part[1], by.value)}};
  }
};

}  // namespace
}  // namespace gyre::kernels
