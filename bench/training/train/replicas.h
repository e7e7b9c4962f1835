// Each rank has the whole model. Either all get the mean of the gradients and update their own copy
// (ddp); or one updates and sends the parameters to all (server); or each trains alone and they
// average their parameters now and then (local).
#pragma once

#include "bench/training/train/model_copy.h"

namespace gyre::training {

class Replicas final : public Way {
 public:
  Replicas(gyreComm_t comm, const Model& model, const WayOptions& options);
  ~Replicas() override;
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  void gather(std::size_t) override {}
  void release(std::size_t) override {}
  const float* parameter(std::size_t tensor) override { return copy_.values(tensor).data(); }
  float* gradient(std::size_t tensor) override;
  void ready(std::size_t tensor) override;
  void step() override;
  void settle() override;
  double exposed_seconds() const override;
  std::vector<gyreGradPiece_t> pieces() override { return copy_.pieces(); }
  std::vector<gyreGradPiece_t> pieces_to_save() override;
  void imported(std::uint64_t updates) override { steps_ = updates; }

 private:
  bool updates() const { return options_.parallel != Parallelism::server || rank_ == server_rank; }
  template <typename Call>
  void wait_in(const Call& call);

  static constexpr int server_rank = 0;
  const WayOptions options_;
  const int rank_;
  ModelCopy copy_;
  std::uint64_t steps_ = 0;
  double waited_seconds_ = 0;  // beside what gyreGradWait counts
  gyreGrad_t grad_ = nullptr;
};

}  // namespace gyre::training
