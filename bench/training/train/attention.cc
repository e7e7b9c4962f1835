#include "bench/training/train/attention.h"

#include "bench/training/train/layers.h"

#include <algorithm>
#include <cmath>

namespace gyre::training {
namespace {

// Where one head of one text lies; queries, keys and values have rows of 3 width.
struct Head {
  std::size_t taken, weights, output;
};

Head head_at(const AttentionShape& shape, std::size_t text, std::size_t head) {
  return {text * shape.length * 3 * shape.width + head * shape.head_width(),
          (text * shape.heads + head) * shape.length * shape.length,
          text * shape.length * shape.width + head * shape.head_width()};
}

float scale_of(const AttentionShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_width()));
}

// Rows of scores become weights: zero for what lies ahead.
void weigh(const AttentionShape& shape, float* scores) {
  const float scale = scale_of(shape);
  for (std::size_t place = 0; place < shape.length; ++place) {
    float* const row = scores + place * shape.length;
    const std::size_t seen = place + 1;
    const float most = *std::max_element(row, row + seen);
    for (std::size_t i = 0; i < seen; ++i) row[i] = exponential((row[i] - most) * scale);
    float sum = 0;
    for (std::size_t i = 0; i < seen; ++i) sum += row[i];
    for (std::size_t i = 0; i < seen; ++i) row[i] /= sum;
    std::fill(row + seen, row + shape.length, 0.0F);
  }
}

// The gradients of weights become those of scores before scaling.
void weigh_backward(const AttentionShape& shape, const float* weights, float* gradient) {
  const float scale = scale_of(shape);
  for (std::size_t place = 0; place < shape.length; ++place) {
    const float* const weight = weights + place * shape.length;
    float* const row = gradient + place * shape.length;
    float mean = 0;
    for (std::size_t i = 0; i <= place; ++i) mean += weight[i] * row[i];
    for (std::size_t i = 0; i < shape.length; ++i) row[i] = weight[i] * (row[i] - mean) * scale;
  }
}

}  // namespace

void attend(const AttentionShape& shape, Multiplier& by, const float* taken, float* weights,
            float* output) {
  const std::size_t length = shape.length, width = shape.width, part = shape.head_width();
  for (std::size_t text = 0; text < shape.texts; ++text)
    for (std::size_t head = 0; head < shape.heads; ++head) {
      const Head at = head_at(shape, text, head);
      const MatrixView query = MatrixView::rows_of(taken + at.taken, 3 * width);
      const MatrixView key = MatrixView::rows_of(taken + at.taken + width, 3 * width);
      const MatrixView value = MatrixView::rows_of(taken + at.taken + 2 * width, 3 * width);
      float* const weight = weights + at.weights;
      by.multiply({query, key.transposed(), weight, length, length, length, part});
      weigh(shape, weight);
      by.multiply({MatrixView::rows_of(weight, length), value, output + at.output, width, length,
                   part, length});
    }
}

void attend_backward(const AttentionShape& shape, Multiplier& by, const float* taken,
                     const float* weights, const float* output_gradient, float* taken_gradient) {
  const std::size_t length = shape.length, width = shape.width, part = shape.head_width();
  std::vector<float> scores(length * length);
  for (std::size_t text = 0; text < shape.texts; ++text)
    for (std::size_t head = 0; head < shape.heads; ++head) {
      const Head at = head_at(shape, text, head);
      const MatrixView query = MatrixView::rows_of(taken + at.taken, 3 * width);
      const MatrixView key = MatrixView::rows_of(taken + at.taken + width, 3 * width);
      const MatrixView value = MatrixView::rows_of(taken + at.taken + 2 * width, 3 * width);
      const MatrixView weight = MatrixView::rows_of(weights + at.weights, length);
      const MatrixView output = MatrixView::rows_of(output_gradient + at.output, width);
      const MatrixView score = MatrixView::rows_of(scores.data(), length);
      float* const gradient = taken_gradient + at.taken;
      const auto give = [&](const MatrixView& left, const MatrixView& right, std::size_t place) {
        by.multiply({left, right, gradient + place * width, 3 * width, length, part, length});
      };
      give(weight.transposed(), output, 2);
      by.multiply({output, value.transposed(), scores.data(), length, length, length, part});
      weigh_backward(shape, weights + at.weights, scores.data());
      give(score, key, 0);
      give(score.transposed(), query, 1);
    }
}

}  // namespace gyre::training
