#include "bench/training/train/model_copy.h"

#include "bench/training/train/optimizer.h"

namespace gyre::training {

ModelCopy::ModelCopy(const Model& model, const WayOptions& options, bool has_values, bool updates)
    : options_(options) {
  const std::vector<TensorShape>& shapes = model.tensors();
  const bool has_state1 = options.optimizer == gyreGradAdamW || options.has_momentum;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    TensorCopy& tensor = tensors_.emplace_back();
    tensor.values.resize(shapes[i].count);
    if (has_values) initialize(shapes[i], i, options.seed, tensor.values.data());
    if (updates && has_state1) tensor.state1.resize(shapes[i].count);
    if (updates && options.optimizer == gyreGradAdamW) tensor.state2.resize(shapes[i].count);
  }
}

std::vector<gyreGradPiece_t> ModelCopy::pieces() {
  std::vector<gyreGradPiece_t> pieces;
  const auto start = [](std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    TensorCopy& tensor = tensors_[i];
    pieces.push_back({i, 0, tensor.values.size(), tensor.values.data(), start(tensor.state1),
                      start(tensor.state2)});
  }
  return pieces;
}

void ModelCopy::update(std::uint64_t count,
                       const std::function<const float*(std::size_t)>& gradient) {
  const gyreGradStep_t step = options_.step_at(count);
  for (const gyreGradPiece_t& piece : pieces())
    update_piece(options_.optimizer, step, count, piece, gradient(piece.tensor));
}

}  // namespace gyre::training
