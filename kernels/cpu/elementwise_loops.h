// The loops of elementwise_table.h, plain enough for the compiler to make vectors of. Each file
// that includes this is compiled for another instruction set; contraction is off in all, so that
// the bits are the same.
#pragma once

#include "kernels/cpu/elementwise_table.h"
#include "kernels/cpu/narrow_float.h"

#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace gyre::kernels {
namespace {

template <typename Value>
[[gnu::always_inline]] inline Value load(const void* source, std::uint64_t index) {
  Value value;
  std::memcpy(&value, static_cast<const std::byte*>(source) + index * sizeof value, sizeof value);
  return value;
}

template <typename Value>
[[gnu::always_inline]] inline void store(void* target, std::uint64_t index, Value value) {
  std::memcpy(static_cast<std::byte*>(target) + index * sizeof value, &value, sizeof value);
}

// bfloat16 and float32 without branches, which a vector cannot take.
void widen_bfloat16(const void* source, float* target, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t code = load<std::uint16_t>(source, i);
    target[i] = __builtin_bit_cast(float, code << 16);
  }
}

void narrow_bfloat16(const float* source, void* target, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = load<std::uint32_t>(source, i);
    // To nearest even; a finite number that is too large becomes Inf by the carry.
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const bool is_nan = (bits & Float32Bits::magnitude) > Float32Bits::infinity;
    store(target, i, static_cast<std::uint16_t>(is_nan ? BFloat16::canonical_nan : rounded));
  }
}

void widen_float16(const void* source, float* target, std::uint64_t count) {
  std::uint64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(load<__m128i>(source, i / 8)));
#endif
  for (; i < count; ++i)
    target[i] = __builtin_bit_cast(float, Float16::widen(load<std::uint16_t>(source, i)));
}

void narrow_float16(const float* source, void* target, std::uint64_t count) {
  std::uint64_t i = 0;
#if defined(__F16C__)
  const __m128i nan = _mm_set1_epi16(static_cast<short>(Float16::canonical_nan));
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(source + i);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m128i where =
        _mm_packs_epi32(_mm256_castsi256_si128(is_nan), _mm256_extracti128_si256(is_nan, 1));
    const __m128i codes = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    store(target, i / 8, _mm_blendv_epi8(codes, nan, where));
  }
#endif
  for (; i < count; ++i)
    store(
        target, i,
        static_cast<std::uint16_t>(Float16::narrow(__builtin_bit_cast(std::uint32_t, source[i]))));
}

void copy_in(const void* source, float* target, std::uint64_t count) {
  std::memcpy(target, source, count * sizeof(float));
}
void copy_out(const float* source, void* target, std::uint64_t count) {
  std::memcpy(target, source, count * sizeof(float));
}

void scale_all(float* values, std::uint64_t count, float factor) {
  for (std::uint64_t i = 0; i < count; ++i) values[i] *= factor;
}

// At most a block; what is missing of it counts as zeros.
double sum_square_block(const float* values, std::uint64_t count) {
  constexpr std::uint64_t lanes = 16;
  float padded[elements_squared] = {};
  if (count < elements_squared) {
    std::memcpy(padded, values, count * sizeof(float));
    values = padded;
  }
  double sums[lanes] = {};
  for (std::uint64_t i = 0; i < elements_squared; i += lanes)
    for (std::uint64_t lane = 0; lane < lanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  for (std::uint64_t apart = lanes / 2; apart > 0; apart /= 2)
    for (std::uint64_t lane = 0; lane < apart; ++lane) sums[lane] += sums[lane + apart];
  return sums[0];
}

void step_adamw(const AdamWFactors& factors, const float* __restrict gradient,
                float* __restrict parameter, float* __restrict first, float* __restrict second,
                std::uint64_t count) {
  const AdamWFactors by = factors;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    const float kept = parameter[i] * by.keep;
    const float mean = first[i] + by.first_new * (g - first[i]);
    const float square = by.second_old * second[i] + by.second_new * g * g;
    const float root = __builtin_sqrtf(square) / by.root + by.epsilon;
    first[i] = mean;
    second[i] = square;
    parameter[i] = kept - by.rate * mean / root;
  }
}

void step_sgd(const SgdFactors& factors, const float* __restrict gradient,
              float* __restrict parameter, float* __restrict buffer, std::uint64_t count) {
  const SgdFactors by = factors;
  if (by.momentum == 0) {
    for (std::uint64_t i = 0; i < count; ++i)
      parameter[i] -= by.learning_rate * (gradient[i] + by.weight_decay * parameter[i]);
    return;
  }
  const float old_share = by.is_first_step ? 0 : by.momentum;
  const float new_share = by.is_first_step ? 1 : 1 - by.dampening;
  const float ahead = by.nesterov ? by.momentum : 1;
  const float plain = by.nesterov ? 1.0F : 0.0F;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float g = gradient[i] + by.weight_decay * parameter[i];
    const float moved = old_share * buffer[i] + new_share * g;
    buffer[i] = moved;
    parameter[i] -= by.learning_rate * (plain * g + ahead * moved);
  }
}

constexpr ElementwiseTable make_elementwise_table() {
  ElementwiseTable table{};
  const auto at = [](ElementType type) { return static_cast<int>(type); };
  table.widen[at(ElementType::float32)] = copy_in;
  table.narrow[at(ElementType::float32)] = copy_out;
  table.widen[at(ElementType::float16)] = widen_float16;
  table.narrow[at(ElementType::float16)] = narrow_float16;
  table.widen[at(ElementType::bfloat16)] = widen_bfloat16;
  table.narrow[at(ElementType::bfloat16)] = narrow_bfloat16;
  table.scale = scale_all;
  table.square_sum = sum_square_block;
  table.adamw = step_adamw;
  table.sgd = step_sgd;
  return table;
}

}  // namespace
}  // namespace gyre::kernels
