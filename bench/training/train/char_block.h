// A block of the character model: attention and a perceptron, each on normalised input and added to
// its input. It keeps what its backward pass needs.
#pragma once

#include "bench/training/train/attention.h"
#include "bench/training/train/layers.h"
#include "bench/training/train/model.h"

namespace gyre::training {

// What the backward passes of all blocks write to in turn.
struct BlockScratch {
  std::vector<float> narrow, taken, wide;  // width, 3 width and 4 width numbers for each place
};

class CharBlock {
 public:
  // Its tensors have the numbers from first_tensor on.
  CharBlock(const AttentionShape& shape, std::size_t unit, std::size_t first_tensor);
  static std::vector<TensorShape> tensors(std::size_t width, std::size_t unit, float deviation);

  // `input` is where the block's input has to be put, `output` what the next one takes.
  float* input() { return input_.data(); }
  void forward(Multiplier& by, Storage& storage, float* output);
  // `gradient`: of the output before, of the input after.
  void backward(Multiplier& by, Storage& storage, BlockScratch& scratch, float* gradient);

 private:
  enum BlockTensor : std::size_t {
    norm1_scale,
    norm1_shift,
    take_weight,
    take_bias,
    give_weight,
    give_bias,
    norm2_scale,
    norm2_shift,
    widen_weight,
    widen_bias,
    narrow_weight,
    narrow_bias,
    tensor_count
  };
  void backward_perceptron(Multiplier& by, Storage& storage, BlockScratch& scratch,
                           float* gradient);
  void backward_attention(Multiplier& by, Storage& storage, BlockScratch& scratch, float* gradient);
  void finish_linear(Multiplier& by, Storage& storage, const Linear& linear, std::size_t weight,
                     const float* input, const float* output_gradient, float* input_gradient);
  void finish_norm(Storage& storage, std::size_t scale, const float* input,
                   const float* output_gradient, float* input_gradient);

  const AttentionShape shape_;
  const std::size_t unit_, first_tensor_;
  const LayerNorm norm_;
  const Linear take_, give_, widen_, narrow_;
  std::vector<float> input_, normed1_, taken_, weights_, attended_, middle_, normed2_, wide_,
      active_;
};

}  // namespace gyre::training
