// A perceptron that classifies handwritten digits: hidden layers with GELU, and a layer of ten.
#pragma once

#include "bench/training/train/digits_data.h"
#include "bench/training/train/layers.h"
#include "bench/training/train/model.h"

namespace gyre::training {

struct DigitsShape {
  std::size_t hidden = 2, width = 256;
};

class DigitsModel final : public Model {
 public:
  // `data` outlives the model; every fifth digit is kept for tests.
  DigitsModel(const DigitsData& data, const DigitsShape& shape, std::size_t batch);

  const std::vector<TensorShape>& tensors() const override { return tensors_; }
  std::string description() const override;
  std::string data_text() const override;
  std::uint64_t examples() const override { return data_.count() - data_.count() / test_share; }
  double learn(std::span<const std::uint64_t> examples, Storage& storage) override;
  Score test(int rank, int ranks, Storage& storage) override;

 private:
  static constexpr std::uint64_t test_share = 5;
  void take(std::size_t row, std::uint64_t digit);
  void forward(std::size_t rows, Storage& storage, bool keeps_last);
  Linear layer(std::size_t unit, std::size_t rows) const;

  const DigitsData& data_;
  const DigitsShape shape_;
  const std::size_t batch_;
  std::vector<TensorShape> tensors_;
  Multiplier multiplier_;
  // By unit: what a layer takes, and what it gives before GELU; the last one gives logits.
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace gyre::training
