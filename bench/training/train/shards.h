// Ranks share the model: the optimizer's state (stage 1), gradients too (2), parameters too (3).
// All ranks share one model, or each group of consecutive ranks shares a model of its own (hybrid).
#pragma once

#include "bench/training/train/way.h"

namespace gyre::training {

class ShardedTraining final : public Way {
 public:
  ShardedTraining(gyreComm_t comm, const Model& model, const WayOptions& options);
  ~ShardedTraining() override;
  ShardedTraining(const ShardedTraining&) = delete;
  ShardedTraining& operator=(const ShardedTraining&) = delete;

  void gather(std::size_t unit) override;
  void release(std::size_t unit) override;
  const float* parameter(std::size_t tensor) override;
  float* gradient(std::size_t tensor) override;
  void ready(std::size_t tensor) override;
  void step() override;
  double exposed_seconds() const override { return exposed_seconds_; }
  std::vector<gyreGradPiece_t> pieces() override;
  std::vector<gyreGradPiece_t> pieces_to_save() override;
  void imported(std::uint64_t updates) override;

 private:
  const WayOptions options_;
  bool saves_ = true;
  std::uint64_t steps_ = 0;
  double exposed_seconds_ = 0;
  gyreGradShards_t shards_ = nullptr;
};

}  // namespace gyre::training
