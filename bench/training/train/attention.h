// Causal attention of several heads (arXiv 1706.03762): each position of a text takes a mean over
// the positions up to its own, weighted by how well its query fits their keys.
#pragma once

#include "bench/training/train/multiplier.h"

#include <cstddef>
#include <vector>

namespace gyre::training {

struct AttentionShape {
  std::size_t texts = 0, length = 0, heads = 0, width = 0;

  std::size_t head_width() const { return width / heads; }
  std::size_t weights() const { return texts * heads * length * length; }
};

// `taken`: for each place of each text its queries, keys and values, of all heads: 3 width numbers.
// `weights`: by text and head, length x length. `output`: width numbers for each place.
void attend(const AttentionShape& shape, Multiplier& by, const float* taken, float* weights,
            float* output);
void attend_backward(const AttentionShape& shape, Multiplier& by, const float* taken,
                     const float* weights, const float* output_gradient, float* taken_gradient);

}  // namespace gyre::training
