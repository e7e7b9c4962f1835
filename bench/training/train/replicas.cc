#include "bench/training/train/replicas.h"

#include "bench/training/failure.h"
#include "bench/training/train/optimizer.h"

#include <algorithm>
#include <chrono>

namespace gyre::training {

Replicas::Replicas(gyreComm_t comm, const Model& model, const WayOptions& options)
    : options_(options) {
  expect(gyreCommUserRank(comm, &rank_), comm);
  const std::vector<TensorShape>& shapes = model.tensors();
  const bool has_state1 = options.optimizer == gyreGradAdamW || options.has_momentum;
  std::vector<gyreGradTensor_t> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Tensor& tensor = tensors_.emplace_back();
    tensor.values.resize(shapes[i].count);
    if (rank_ == 0) initialize(shapes[i], i, options.seed, tensor.values.data());
    if (updates() && has_state1) tensor.state1.resize(shapes[i].count);
    if (updates() && options.optimizer == gyreGradAdamW) tensor.state2.resize(shapes[i].count);
    tensors.push_back(
        {shapes[i].name.c_str(), shapes[i].count, gyreFloat, tensor.values.data(), nullptr});
  }
  gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
  config.bucketBytes = options.bucket_bytes;
  config.firstBucketBytes = std::min(config.firstBucketBytes, options.bucket_bytes);
  if (options.parallel == Parallel::server) config.server = server_rank;
  expect(gyreGradCreate(&grad_, comm, tensors.data(), tensors.size(), &config));
  if (options.parallel == Parallel::local) expect(gyreGradSetSync(grad_, 0));
}

Replicas::~Replicas() { gyreGradDestroy(grad_); }

float* Replicas::gradient(std::size_t tensor) {
  void* view = nullptr;
  expect(gyreGradView(grad_, tensor, &view));
  return static_cast<float*>(view);
}

void Replicas::ready(std::size_t tensor) { expect(gyreGradReady(grad_, tensor, nullptr)); }

template <typename Call>
void Replicas::wait_in(const Call& call) {
  const auto began = std::chrono::steady_clock::now();
  expect(call(grad_));
  waited_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void Replicas::step(const gyreGradStep_t& step) {
  expect(gyreGradWait(grad_));
  ++steps_;
  if (updates()) update(step);
  if (options_.parallel == Parallel::server) wait_in(gyreGradReturn);
  if (options_.parallel == Parallel::local && steps_ % options_.local_steps == 0) settle();
}

void Replicas::update(const gyreGradStep_t& step) {
  for (const gyreGradPiece_t& piece : pieces())
    update_piece(options_.optimizer, step, steps_, piece, gradient(piece.tensor));
}

void Replicas::settle() {
  if (options_.parallel == Parallel::local) wait_in(gyreGradAverageParameters);
}

double Replicas::exposed_seconds() const {
  gyreGradStats_t stats{};
  stats.size = sizeof stats;
  expect(gyreGradGetStats(grad_, &stats));
  return stats.exposedSeconds + waited_seconds_;
}

std::vector<gyreGradPiece_t> Replicas::pieces() {
  std::vector<gyreGradPiece_t> pieces;
  const auto start = [](std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    pieces.push_back({i, 0, tensor.values.size(), tensor.values.data(), start(tensor.state1),
                      start(tensor.state2)});
  }
  return pieces;
}

// All replicas are alike, and the server's rank has all of the optimizer.
std::vector<gyreGradPiece_t> Replicas::pieces_to_save() {
  if (rank_ != server_rank) return {};
  return pieces();
}

void Replicas::imported(std::uint64_t steps) { steps_ = steps; }

}  // namespace gyre::training
