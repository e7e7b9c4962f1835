#include "bench/training/train/replicas.h"

#include "bench/training/failure.h"
#include "bench/training/job.h"

#include <algorithm>
#include <chrono>

namespace gyre::training {

Replicas::Replicas(gyreComm_t comm, const Model& model, const WayOptions& options)
    : options_(options), rank_(bench::rank_of(comm)), copy_(model, options, rank_ == 0, updates()) {
  const std::vector<TensorShape>& shapes = model.tensors();
  std::vector<gyreGradTensor_t> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    tensors.push_back(
        {shapes[i].name.c_str(), shapes[i].count, gyreFloat, copy_.values(i).data(), nullptr});
  gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
  config.bucketBytes = options.bucket_bytes;
  config.firstBucketBytes = std::min(config.firstBucketBytes, options.bucket_bytes);
  if (options.parallel == Parallelism::server) config.server = server_rank;
  expect(gyreGradCreate(&grad_, comm, tensors.data(), tensors.size(), &config));
  if (options.parallel == Parallelism::local) expect(gyreGradSetSync(grad_, 0));
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

void Replicas::step() {
  expect(gyreGradWait(grad_));
  ++steps_;
  if (updates()) copy_.update(steps_, [this](std::size_t tensor) { return gradient(tensor); });
  if (options_.parallel == Parallelism::server) wait_in(gyreGradReturn);
  if (options_.parallel == Parallelism::local && steps_ % options_.local_steps == 0) settle();
}

void Replicas::settle() {
  if (options_.parallel == Parallelism::local) wait_in(gyreGradAverageParameters);
}

double Replicas::exposed_seconds() const {
  gyreGradStats_t stats{};
  stats.size = sizeof stats;
  expect(gyreGradGetStats(grad_, &stats));
  return stats.exposedSeconds + waited_seconds_;
}

// All replicas are alike, and the server's rank has all of the optimizer.
std::vector<gyreGradPiece_t> Replicas::pieces_to_save() {
  if (rank_ != server_rank) return {};
  return pieces();
}

}  // namespace gyre::training
