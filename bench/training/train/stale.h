// Each rank has the whole model, and none waits for a slow one in every step (bounded staleness).
// Gradients are summed in rounds, and all ranks apply the same rounds in the same order. A rank may
// be steps ahead of another, so their parameters are equal only after all have ended.
#pragma once

#include "bench/training/train/model_copy.h"

namespace gyre::training {

class Stale final : public Way {
 public:
  Stale(gyreComm_t comm, const Model& model, const WayOptions& options);
  ~Stale() override;
  Stale(const Stale&) = delete;
  Stale& operator=(const Stale&) = delete;

  void gather(std::size_t) override {}
  void release(std::size_t) override {}
  const float* parameter(std::size_t tensor) override { return copy_.values(tensor).data(); }
  float* gradient(std::size_t tensor) override { return gradients_[tensor].data(); }
  void ready(std::size_t) override {}
  void step() override;
  void settle() override;
  bool is_in_step() const override { return false; }
  double exposed_seconds() const override;
  std::vector<gyreGradPiece_t> pieces() override { return copy_.pieces(); }
  std::vector<gyreGradPiece_t> pieces_to_save() override;
  void imported(std::uint64_t updates) override { rounds_ = updates; }

 private:
  static gyreResult_t apply(void* self, const gyreGradRound_t* round);

  const int rank_;
  ModelCopy copy_;
  std::vector<std::vector<float>> gradients_;
  std::uint64_t rounds_ = 0;
  double update_seconds_ = 0;
  gyreGradStale_t stale_ = nullptr;
};

}  // namespace gyre::training
