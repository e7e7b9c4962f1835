// Layers of a network, forward and backward, on arrays of float32: `rows` rows of `width` numbers.
// A backward function overwrites the gradients of parameters. It overwrites the gradient of its
// input too, or adds to it if its name says so.
#pragma once

#include "bench/training/train/multiplier.h"

#include <cstddef>
#include <cstdint>

namespace gyre::training {

// e^x to 3e-7 of its value, where x is within 60 of 0, else what it is there: numbers so small that
// processors are slow with them are left out. For loops that the compiler makes vectors of.
[[gnu::always_inline]] inline float exponential(float x) {
  // NaN stays NaN: a comparison with it is false.
  x = -60.0F > x ? -60.0F : x;
  x = 60.0F < x ? 60.0F : x;
  // The nearest integer of x / ln 2, in the low bits of a number whose unit is 1.
  constexpr float round = 12582912.0F;
  const float shifted = x * 1.44269504F + round;
  const float count = shifted - round;
  const float rest = (x - count * 0.693359375F) + count * 2.12194440e-4F;
  const std::uint32_t exponent =
      __builtin_bit_cast(std::uint32_t, shifted) - __builtin_bit_cast(std::uint32_t, round) + 127;
  const float power = __builtin_bit_cast(float, exponent << 23);
  const float series =
      1.0F + rest * (1.0F + rest * (0.5F + rest * (1.6666665459e-1F +
                                                   rest * (4.1665795894e-2F +
                                                           rest * (8.3334519073e-3F +
                                                                   rest * 1.3981999507e-3F)))));
  return series * power;
}

// output = input weight + bias; `weight` is input_width x output_width.
struct Linear {
  std::size_t rows = 0, input_width = 0, output_width = 0;

  void forward(Multiplier& by, const float* input, const float* weight, const float* bias,
               float* output) const;
  // input_gradient may be null.
  void backward(Multiplier& by, const float* input, const float* weight,
                const float* output_gradient, float* input_gradient, float* weight_gradient,
                float* bias_gradient) const;
};

// Each row less its mean, divided by its deviation, times scale, plus shift (arXiv 1607.06450).
struct LayerNorm {
  std::size_t rows = 0, width = 0;
  static constexpr float epsilon = 1e-5F;

  void forward(const float* input, const float* scale, const float* shift, float* output) const;
  void backward_adding(const float* input, const float* scale, const float* output_gradient,
                       float* input_gradient, float* scale_gradient, float* shift_gradient) const;
};

// x / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3))): the form with tanh of arXiv 1606.08415.
void gelu(const float* input, float* output, std::size_t count);
// `gradient`: of the output before, of the input after.
void gelu_backward(const float* input, float* gradient, std::size_t count);

// The sum over rows of -log softmax(row)[label]; `logits` become the gradient of `weight` times it.
double cross_entropy(float* logits, const std::uint8_t* labels, std::size_t rows, std::size_t width,
                     float weight);

}  // namespace gyre::training
