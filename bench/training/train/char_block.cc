#include "bench/training/train/char_block.h"

#include <algorithm>

namespace gyre::training {

CharBlock::CharBlock(const AttentionShape& shape, std::size_t unit, std::size_t first_tensor)
    : shape_(shape),
      unit_(unit),
      first_tensor_(first_tensor),
      norm_{shape.texts * shape.length, shape.width},
      take_{norm_.rows, shape.width, 3 * shape.width},
      give_{norm_.rows, shape.width, shape.width},
      widen_{norm_.rows, shape.width, 4 * shape.width},
      narrow_{norm_.rows, 4 * shape.width, shape.width} {
  const std::size_t count = norm_.rows * shape.width;
  for (auto* values : {&input_, &normed1_, &attended_, &middle_, &normed2_}) values->resize(count);
  taken_.resize(3 * count);
  weights_.resize(shape.weights());
  for (auto* values : {&wide_, &active_}) values->resize(4 * count);
}

std::vector<TensorShape> CharBlock::tensors(std::size_t width, std::size_t unit, float deviation) {
  const std::string name = "block" + std::to_string(unit) + ".";
  return {{name + "norm1.scale", width, unit, 1, 0},
          {name + "norm1.shift", width, unit, 0, 0},
          {name + "take.weight", 3 * width * width, unit, 0, deviation},
          {name + "take.bias", 3 * width, unit, 0, 0},
          {name + "give.weight", width * width, unit, 0, deviation},
          {name + "give.bias", width, unit, 0, 0},
          {name + "norm2.scale", width, unit, 1, 0},
          {name + "norm2.shift", width, unit, 0, 0},
          {name + "widen.weight", 4 * width * width, unit, 0, deviation},
          {name + "widen.bias", 4 * width, unit, 0, 0},
          {name + "narrow.weight", 4 * width * width, unit, 0, deviation},
          {name + "narrow.bias", width, unit, 0, 0}};
}

void CharBlock::forward(Multiplier& by, Storage& storage, float* output) {
  storage.gather(unit_);
  const auto of = [&](std::size_t tensor) { return storage.parameter(first_tensor_ + tensor); };
  norm_.forward(input_.data(), of(norm1_scale), of(norm1_shift), normed1_.data());
  take_.forward(by, normed1_.data(), of(take_weight), of(take_bias), taken_.data());
  attend(shape_, by, taken_.data(), weights_.data(), attended_.data());
  give_.forward(by, attended_.data(), of(give_weight), of(give_bias), middle_.data());
  for (std::size_t i = 0; i < middle_.size(); ++i) middle_[i] += input_[i];
  norm_.forward(middle_.data(), of(norm2_scale), of(norm2_shift), normed2_.data());
  widen_.forward(by, normed2_.data(), of(widen_weight), of(widen_bias), wide_.data());
  gelu(wide_.data(), active_.data(), wide_.size());
  narrow_.forward(by, active_.data(), of(narrow_weight), of(narrow_bias), output);
  for (std::size_t i = 0; i < middle_.size(); ++i) output[i] += middle_[i];
  storage.release(unit_);
}

void CharBlock::backward(Multiplier& by, Storage& storage, BlockScratch& scratch, float* gradient) {
  storage.gather(unit_);
  backward_perceptron(by, storage, scratch, gradient);
  backward_attention(by, storage, scratch, gradient);
  storage.release(unit_);
}

void CharBlock::backward_perceptron(Multiplier& by, Storage& storage, BlockScratch& scratch,
                                    float* gradient) {
  finish_linear(by, storage, narrow_, narrow_weight, active_.data(), gradient, scratch.wide.data());
  gelu_backward(wide_.data(), scratch.wide.data(), wide_.size());
  finish_linear(by, storage, widen_, widen_weight, normed2_.data(), scratch.wide.data(),
                scratch.narrow.data());
  finish_norm(storage, norm2_scale, middle_.data(), scratch.narrow.data(), gradient);
}

void CharBlock::backward_attention(Multiplier& by, Storage& storage, BlockScratch& scratch,
                                   float* gradient) {
  finish_linear(by, storage, give_, give_weight, attended_.data(), gradient, scratch.narrow.data());
  attend_backward(shape_, by, taken_.data(), weights_.data(), scratch.narrow.data(),
                  scratch.taken.data());
  finish_linear(by, storage, take_, take_weight, normed1_.data(), scratch.taken.data(),
                scratch.narrow.data());
  finish_norm(storage, norm1_scale, input_.data(), scratch.narrow.data(), gradient);
}

// The bias follows its weight, and the shift its scale.
void CharBlock::finish_linear(Multiplier& by, Storage& storage, const Linear& linear,
                              std::size_t weight, const float* input, const float* output_gradient,
                              float* input_gradient) {
  const std::size_t tensor = first_tensor_ + weight;
  linear.backward(by, input, storage.parameter(tensor), output_gradient, input_gradient,
                  storage.gradient(tensor), storage.gradient(tensor + 1));
  storage.ready(tensor + 1);
  storage.ready(tensor);
}

void CharBlock::finish_norm(Storage& storage, std::size_t scale, const float* input,
                            const float* output_gradient, float* input_gradient) {
  const std::size_t tensor = first_tensor_ + scale;
  norm_.backward_adding(input, storage.parameter(tensor), output_gradient, input_gradient,
                        storage.gradient(tensor), storage.gradient(tensor + 1));
  storage.ready(tensor + 1);
  storage.ready(tensor);
}

}  // namespace gyre::training
