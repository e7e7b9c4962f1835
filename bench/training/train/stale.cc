#include "bench/training/train/stale.h"

#include "bench/training/failure.h"
#include "bench/training/job.h"

#include <chrono>

namespace gyre::training {

Stale::Stale(gyreComm_t comm, const Model& model, const WayOptions& options)
    : rank_(bench::rank_of(comm)), copy_(model, options, true, true) {
  const std::vector<TensorShape>& shapes = model.tensors();
  std::vector<gyreGradTensor_t> tensors;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::vector<float>& gradient = gradients_.emplace_back(shapes[i].count);
    tensors.push_back({shapes[i].name.c_str(), shapes[i].count, gyreFloat, copy_.values(i).data(),
                       gradient.data()});
  }
  gyreGradStaleConfig_t config = GYRE_GRAD_STALE_CONFIG_INITIALIZER;
  config.staleness = options.staleness;
  expect(gyreGradStaleCreate(&stale_, comm, tensors.data(), tensors.size(), &config));
}

Stale::~Stale() { gyreGradStaleDestroy(stale_); }

void Stale::step() { expect(gyreGradStaleStep(stale_, apply, this)); }
void Stale::settle() { expect(gyreGradStaleEnd(stale_, apply, this)); }

// The optimizer counts rounds, which are alike on all ranks, where steps are not.
gyreResult_t Stale::apply(void* self, const gyreGradRound_t*) {
  Stale& stale = *static_cast<Stale*>(self);
  const auto began = std::chrono::steady_clock::now();
  stale.copy_.update(++stale.rounds_, [&](std::size_t tensor) { return stale.gradient(tensor); });
  stale.update_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return gyreSuccess;
}

double Stale::exposed_seconds() const {
  gyreGradStaleStats_t stats{};
  stats.size = sizeof stats;
  expect(gyreGradStaleGetStats(stale_, &stats));
  return stats.exposedSeconds - update_seconds_;
}

std::vector<gyreGradPiece_t> Stale::pieces_to_save() {
  if (rank_ != 0) return {};
  return pieces();
}

}  // namespace gyre::training
