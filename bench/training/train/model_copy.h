// A rank's whole copy of a model, with the optimizer's state if this rank updates it.
#pragma once

#include "bench/training/train/way.h"

#include <functional>

namespace gyre::training {

class ModelCopy {
 public:
  // `has_values`: the first values; else zeros.
  ModelCopy(const Model& model, const WayOptions& options, bool has_values, bool updates);

  std::vector<float>& values(std::size_t tensor) { return tensors_[tensor].values; }
  std::vector<gyreGradPiece_t> pieces();
  // Update number `count` from 1, by the gradients that lie where `gradient` says of each tensor.
  void update(std::uint64_t count, const std::function<const float*(std::size_t)>& gradient);

 private:
  struct TensorCopy {
    std::vector<float> values, state1, state2;
  };
  const WayOptions options_;
  std::vector<TensorCopy> tensors_;
};

}  // namespace gyre::training
