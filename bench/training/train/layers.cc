#include "bench/training/train/layers.h"

#include <algorithm>
#include <cmath>

namespace gyre::training {

void Linear::forward(Multiplier& by, const float* input, const float* weight, const float* bias,
                     float* output) const {
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(bias, output_width, output + row * output_width);
  by.multiply({.left = MatrixView::rows_of(input, input_width),
               .right = MatrixView::rows_of(weight, output_width),
               .result = output,
               .result_stride = output_width,
               .rows = rows,
               .columns = output_width,
               .inner = input_width,
               .adds = true});
}

void Linear::backward(Multiplier& by, const float* input, const float* weight,
                      const float* output_gradient, float* input_gradient, float* weight_gradient,
                      float* bias_gradient) const {
  const MatrixView output = MatrixView::rows_of(output_gradient, output_width);
  by.multiply({.left = MatrixView::rows_of(input, input_width).transposed(),
               .right = output,
               .result = weight_gradient,
               .result_stride = output_width,
               .rows = input_width,
               .columns = output_width,
               .inner = rows});
  std::fill_n(bias_gradient, output_width, 0.0F);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < output_width; ++i)
      bias_gradient[i] += output_gradient[row * output_width + i];
  if (input_gradient == nullptr) return;
  by.multiply({.left = output,
               .right = MatrixView::rows_of(weight, output_width).transposed(),
               .result = input_gradient,
               .result_stride = input_width,
               .rows = rows,
               .columns = input_width,
               .inner = output_width});
}

namespace {

struct RowMoments {
  float mean, inverse_deviation;
};

RowMoments moments_of(const float* row, std::size_t width) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(row[i]);
  const double mean = sum / static_cast<double>(width);
  for (std::size_t i = 0; i < width; ++i) {
    const double apart = static_cast<double>(row[i]) - mean;
    squares += apart * apart;
  }
  const double variance = squares / static_cast<double>(width);
  return {static_cast<float>(mean),
          static_cast<float>(1 / std::sqrt(variance + static_cast<double>(LayerNorm::epsilon)))};
}

}  // namespace

void LayerNorm::forward(const float* input, const float* scale, const float* shift,
                        float* output) const {
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const x = input + row * width;
    float* const y = output + row * width;
    const RowMoments of = moments_of(x, width);
    for (std::size_t i = 0; i < width; ++i)
      y[i] = (x[i] - of.mean) * of.inverse_deviation * scale[i] + shift[i];
  }
}

// With n the normalised row and g = scale * output_gradient: (g - mean(g) - n mean(g n)) /
// deviation.
void LayerNorm::backward_adding(const float* input, const float* scale,
                                const float* output_gradient, float* input_gradient,
                                float* scale_gradient, float* shift_gradient) const {
  std::fill_n(scale_gradient, width, 0.0F);
  std::fill_n(shift_gradient, width, 0.0F);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const x = input + row * width;
    const float* const dy = output_gradient + row * width;
    float* const dx = input_gradient + row * width;
    const RowMoments of = moments_of(x, width);
    double sum = 0, sum_of_products = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const float normalised = (x[i] - of.mean) * of.inverse_deviation;
      const float g = scale[i] * dy[i];
      scale_gradient[i] += dy[i] * normalised;
      shift_gradient[i] += dy[i];
      sum += static_cast<double>(g);
      sum_of_products += static_cast<double>(g * normalised);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(width));
    const auto product = static_cast<float>(sum_of_products / static_cast<double>(width));
    for (std::size_t i = 0; i < width; ++i) {
      const float normalised = (x[i] - of.mean) * of.inverse_deviation;
      dx[i] += (scale[i] * dy[i] - mean - normalised * product) * of.inverse_deviation;
    }
  }
}

namespace {

constexpr float gelu_linear = 1.59576912F;  // 2 sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715F;

[[gnu::always_inline]] inline float gelu_gate(float x) {
  return 1.0F / (1.0F + exponential(-gelu_linear * (x + gelu_cubic * x * x * x)));
}

}  // namespace

void gelu(const float* __restrict input, float* __restrict output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) output[i] = input[i] * gelu_gate(input[i]);
}

void gelu_backward(const float* __restrict input, float* __restrict gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = input[i], gate = gelu_gate(x);
    const float slope = gelu_linear * (1.0F + 3.0F * gelu_cubic * x * x);
    gradient[i] *= gate + x * gate * (1.0F - gate) * slope;
  }
}

double cross_entropy(float* logits, const std::uint8_t* labels, std::size_t rows, std::size_t width,
                     float weight) {
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    float* const values = logits + row * width;
    const float most = *std::max_element(values, values + width);
    const double at_label = static_cast<double>(values[labels[row]] - most);
    double sum = 0;
    for (std::size_t i = 0; i < width; ++i) values[i] = exponential(values[i] - most);
    for (std::size_t i = 0; i < width; ++i) sum += static_cast<double>(values[i]);
    loss += std::log(sum) - at_label;
    const auto factor = static_cast<float>(static_cast<double>(weight) / sum);
    for (std::size_t i = 0; i < width; ++i) values[i] *= factor;
    values[labels[row]] -= weight;
  }
  return loss;
}

}  // namespace gyre::training
