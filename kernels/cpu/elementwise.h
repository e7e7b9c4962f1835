// Arithmetic of gradient sync on each element between two collectives: conversions, sums of
// squares, optimizer steps. As for moves, every instruction set gives the same bits as the scalar
// reference, whatever the calling thread's float settings are. A NaN is only guaranteed to be a
// NaN. Nothing here allocates, waits or fails. Any pointer may have any alignment.
#pragma once

#include "kernels/cpu/move.h"

#include <cstdint>

namespace gyre::kernels {

// Types that have these passes: float16, bfloat16, float32.
constexpr bool has_elementwise(ElementType type) {
  return type == ElementType::float16 || type == ElementType::bfloat16 ||
         type == ElementType::float32;
}

// `count` elements of one type to another: widened to float32, times `factor`, rounded once to
// nearest even. With factor 1 and one type the bits stay. `target` may be `source` if the types
// are one; nothing else may overlap.
struct Conversion {
  ElementType from = ElementType::float32;
  const void* source = nullptr;
  ElementType to = ElementType::float32;
  void* target = nullptr;
  std::uint64_t count = 0;
  float factor = 1;
};
void convert(const Conversion& conversion);
void convert(const Conversion& conversion, InstructionSet set);

// sums[b] = the sum of squares of block b, of 64 elements or what is left, in float64: 16 partial
// sums, each of every sixteenth element in order, added in pairs (0 + 8, 1 + 9, ...; then 4, 2, 1
// apart). A square of a float32 is exact in float64.
inline constexpr std::uint64_t square_block = 64;
void sum_squares(ElementType type, const void* source, std::uint64_t count, double* sums);
void sum_squares(ElementType type, const void* source, std::uint64_t count, double* sums,
                 InstructionSet set);

// What an optimizer's step works on: `count` elements of each.
struct OptimizerMove {
  ElementType gradient_type = ElementType::float32;
  const void* gradient = nullptr;
  float gradient_factor = 1;  // the gradient is this times what lies there
  float* parameter = nullptr;
  float* first = nullptr;   // AdamW: the mean; SGD: the momentum's buffer, null without momentum
  float* second = nullptr;  // AdamW: the mean of squares
  ElementType copy_type = ElementType::float32;
  void* copy = nullptr;  // the new parameters in another type; null: nobody wants them
  std::uint64_t count = 0;
};

// Decoupled weight decay (Loshchilov, Hutter: arXiv 1711.05101, algorithm 2), with the roundings in
// the order of torch.optim.AdamW's single-tensor form (of its lerp, that for beta1 > 0.5):
//   p *= 1 - rate decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g g
//   p -= (rate / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
struct AdamW {
  float learning_rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.01F;
  std::uint64_t step = 1;  // t, from 1
};
void step(const AdamW& optimizer, const OptimizerMove& move);
void step(const AdamW& optimizer, const OptimizerMove& move, InstructionSet set);

//   g += decay p;  b = momentum b + (1 - dampening) g, at the first step b = g;  p -= rate b,
//   or with nesterov p -= rate (g + momentum b); without momentum p -= rate g
struct Sgd {
  float learning_rate = 1e-3F;
  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;
  bool nesterov = false;
  std::uint64_t step = 1;
};
void step(const Sgd& optimizer, const OptimizerMove& move);
void step(const Sgd& optimizer, const OptimizerMove& move, InstructionSet set);

}  // namespace gyre::kernels
