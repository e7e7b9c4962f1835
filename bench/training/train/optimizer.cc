#include "bench/training/train/optimizer.h"

#include <cmath>

namespace gyre::training {
namespace {

// arXiv 1711.05101, algorithm 2, as torch.optim.AdamW rounds.
void update_adamw(const gyreGradStep_t& step, std::uint64_t count, std::size_t elements,
                  float* __restrict parameter, float* __restrict mean, float* __restrict square,
                  const float* __restrict gradient) {
  const auto bias = [&](float beta) {
    return 1 - std::pow(static_cast<double>(beta), static_cast<double>(count));
  };
  const double rate = static_cast<double>(step.learningRate);
  const auto keep = static_cast<float>(1 - rate * static_cast<double>(step.weightDecay));
  const auto mean_new = static_cast<float>(1 - static_cast<double>(step.beta1));
  const auto square_new = static_cast<float>(1 - static_cast<double>(step.beta2));
  const float square_old = step.beta2, epsilon = step.epsilon;
  const auto root = static_cast<float>(std::sqrt(bias(step.beta2)));
  const auto rate_now = static_cast<float>(rate / bias(step.beta1));
  for (std::size_t i = 0; i < elements; ++i) {
    const float g = gradient[i];
    mean[i] += mean_new * (g - mean[i]);
    square[i] = square_old * square[i] + square_new * g * g;
    parameter[i] =
        parameter[i] * keep - rate_now * mean[i] / (__builtin_sqrtf(square[i]) / root + epsilon);
  }
}

void update_sgd(const gyreGradStep_t& step, std::uint64_t count, std::size_t elements,
                float* __restrict parameter, float* __restrict moved,
                const float* __restrict gradient) {
  const float rate = step.learningRate, decay = step.weightDecay;
  if (moved == nullptr) {
    for (std::size_t i = 0; i < elements; ++i)
      parameter[i] -= rate * (gradient[i] + decay * parameter[i]);
    return;
  }
  const float old_share = count == 1 ? 0 : step.momentum;
  const float new_share = count == 1 ? 1 : 1 - step.dampening;
  for (std::size_t i = 0; i < elements; ++i) {
    moved[i] = old_share * moved[i] + new_share * (gradient[i] + decay * parameter[i]);
    parameter[i] -= rate * moved[i];
  }
}

}  // namespace

void update_piece(gyreGradOptimizer_t optimizer, const gyreGradStep_t& step, std::uint64_t count,
                  const gyreGradPiece_t& piece, const float* gradient) {
  if (optimizer == gyreGradSgd)
    update_sgd(step, count, piece.count, piece.parameter, piece.state1, gradient);
  else
    update_adamw(step, count, piece.count, piece.parameter, piece.state1, piece.state2, gradient);
}

}  // namespace gyre::training
