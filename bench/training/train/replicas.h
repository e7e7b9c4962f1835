// Each rank has the whole model: all get the mean of the gradients and update their own copy (ddp),
// or one does and gives the parameters to all (server), or each goes its own way and they meet now
// and then (local).
#pragma once

#include "bench/training/train/way.h"

namespace gyre::training {

class Replicas final : public Way {
 public:
  Replicas(gyreComm_t comm, const Model& model, const WayOptions& options);
  ~Replicas() override;
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  void gather(std::size_t) override {}
  void release(std::size_t) override {}
  const float* parameter(std::size_t tensor) override { return tensors_[tensor].values.data(); }
  float* gradient(std::size_t tensor) override;
  void ready(std::size_t tensor) override;
  void step(const gyreGradStep_t& step) override;
  void settle() override;
  double exposed_seconds() const override;
  std::vector<gyreGradPiece_t> pieces() override;
  std::vector<gyreGradPiece_t> pieces_to_save() override;
  void imported(std::uint64_t steps) override;

 private:
  struct Tensor {
    std::vector<float> values, state1, state2;
  };
  bool updates() const { return options_.parallel != Parallel::server || rank_ == server_rank; }
  void update(const gyreGradStep_t& step);
  template <typename Call>
  void wait_in(const Call& call);

  static constexpr int server_rank = 0;
  const WayOptions options_;
  int rank_ = 0;
  std::vector<Tensor> tensors_;
  std::uint64_t steps_ = 0;
  double waited_seconds_ = 0;  // beside what gyreGradWait counts
  gyreGrad_t grad_ = nullptr;
};

}  // namespace gyre::training
