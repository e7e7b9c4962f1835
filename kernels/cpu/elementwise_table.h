// ElementwiseTable: one instruction set's functions for elementwise.h: loops over float32, and
// conversions from and to the narrow types. Private to kernels/cpu.
#pragma once

#include "lib/base/element.h"

#include <cstdint>

namespace gyre::kernels {

// AdamW's constants, worked out once for a step.
struct AdamWFactors {
  float keep;        // of the parameter: 1 - rate decay
  float first_new;   // 1 - beta1
  float second_old;  // beta2
  float second_new;  // 1 - beta2
  float root;        // sqrt(1 - beta2^t)
  float epsilon;
  float rate;  // rate / (1 - beta1^t)
};

// Sgd's, see elementwise.h.
struct SgdFactors {
  float learning_rate, momentum, dampening, weight_decay;
  bool nesterov;
  bool is_first_step;
};

// square_block of elementwise.h.
inline constexpr std::uint64_t elements_squared = 64;

struct ElementwiseTable {
  // `count` elements to float32 and from it; null where the type has none.
  void (*widen[element_type_count])(const void* source, float* target, std::uint64_t count);
  void (*narrow[element_type_count])(const float* source, void* target, std::uint64_t count);
  void (*scale)(float* values, std::uint64_t count, float factor);
  double (*square_sum)(const float* values, std::uint64_t count);
  void (*adamw)(const AdamWFactors& factors, const float* gradient, float* parameter, float* first,
                float* second, std::uint64_t count);
  void (*sgd)(const SgdFactors& factors, const float* gradient, float* parameter, float* buffer,
              std::uint64_t count);
};

extern const ElementwiseTable elementwise_reference_table;
#ifdef GYRE_KERNELS_X86
extern const ElementwiseTable elementwise_avx2_table;
extern const ElementwiseTable elementwise_avx512_table;
#endif

}  // namespace gyre::kernels
