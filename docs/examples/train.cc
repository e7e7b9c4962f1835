// A training loop: a small perceptron learns z = x * y from made-up points. Each rank works on its
// own samples, and all descend along the mean of their gradients.
//
//   gyre run -n 4 ./train
//
// The last line is a digest of the parameters' bits: with GYRE_REPRODUCIBLE=1 it depends on the
// number of ranks, and neither on the hosts where they are nor on who started them.
//
// Gradients are sent while the backward pass runs: those of the last layer are announced as ready
// before the first layer's are computed.
#include "job.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

using example::check;

namespace {

constexpr std::size_t hidden = 16;
constexpr std::uint64_t samples = 1024, batch = 16;
constexpr int epochs = 60;
constexpr float learning_rate = 0.05F, momentum = 0.9F;

struct Sample {
  float x = 0, y = 0, z = 0;
};
Sample sample(std::uint64_t number) {  // the same on all ranks
  std::mt19937 random(static_cast<std::uint32_t>(number));
  std::uniform_real_distribution<float> between(-1, 1);
  const float x = between(random), y = between(random);
  return {x, y, x * y};
}

// Tensors in the order of the forward pass: two weights and an offset of each hidden value, then a
// weight of each and an offset of their sum.
class Perceptron {
 public:
  enum Tensor { first, first_offset, second, second_offset, tensors };

  explicit Perceptron(gyreComm_t comm) {
    const std::size_t sizes[tensors] = {2 * hidden, hidden, hidden, 1};
    int rank = 0;
    check(gyreCommUserRank(comm, &rank));
    // Each rank draws others; gyreGradCreate makes them rank 0's on all.
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    std::normal_distribution<float> normal(0, 0.5F);
    std::vector<gyreGradTensor_t> list;
    for (int i = 0; i < tensors; ++i) {
      parameters_[i].resize(sizes[i]);
      for (float& value : parameters_[i]) value = normal(random);
      gradients_[i].resize(sizes[i]);
      speeds_[i].resize(sizes[i]);
      const char* const names[] = {"first", "first offset", "second", "second offset"};
      list.push_back({names[i], sizes[i], gyreFloat, parameters_[i].data(), gradients_[i].data()});
    }
    check(gyreGradCreate(&grad_, comm, list.data(), list.size(), nullptr));
  }
  ~Perceptron() { check(gyreGradDestroy(grad_)); }
  Perceptron(const Perceptron&) = delete;
  Perceptron& operator=(const Perceptron&) = delete;

  // One step on this rank's part of the batch; the sum of its squared errors.
  float step(const std::vector<Sample>& part) {
    for (auto& one : gradients_) std::fill(one.begin(), one.end(), 0.0F);
    std::vector<std::vector<float>> values;  // of the hidden layer, for each sample
    std::vector<float> errors;
    float loss = 0;
    for (const Sample& one : part) {
      values.push_back(forward(one));
      float z = parameters_[second_offset][0];
      for (std::size_t i = 0; i < hidden; ++i) z += parameters_[second][i] * values.back()[i];
      loss += (z - one.z) * (z - one.z);
      errors.push_back((z - one.z) / static_cast<float>(part.size()));
    }
    for (std::size_t s = 0; s < part.size(); ++s) {
      gradients_[second_offset][0] += errors[s];
      for (std::size_t i = 0; i < hidden; ++i) gradients_[second][i] += errors[s] * values[s][i];
    }
    check(gyreGradReady(grad_, second_offset, nullptr));
    check(gyreGradReady(grad_, second, nullptr));
    for (std::size_t s = 0; s < part.size(); ++s)
      for (std::size_t i = 0; i < hidden; ++i) {
        const float by_sum = errors[s] * parameters_[second][i] * (1 - values[s][i] * values[s][i]);
        gradients_[first_offset][i] += by_sum;
        gradients_[first][2 * i] += by_sum * part[s].x;
        gradients_[first][2 * i + 1] += by_sum * part[s].y;
      }
    check(gyreGradReady(grad_, first_offset, nullptr));
    check(gyreGradReady(grad_, first, nullptr));
    check(gyreGradWait(grad_));  // now they are the mean over all ranks
    descend();
    return loss;
  }

  // Whether all ranks have the same bits.
  void compare() { check(gyreGradCompare(grad_)); }
  // FNV-1a of them.
  std::uint64_t digest() const {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::vector<float>& values : parameters_)
      for (const float value : values)
        hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
    return hash;
  }

 private:
  std::vector<float> forward(const Sample& one) const {
    std::vector<float> values(hidden);
    for (std::size_t i = 0; i < hidden; ++i)
      values[i] = std::tanh(parameters_[first_offset][i] + parameters_[first][2 * i] * one.x +
                            parameters_[first][2 * i + 1] * one.y);
    return values;
  }
  void descend() {
    for (int t = 0; t < tensors; ++t)
      for (std::size_t i = 0; i < parameters_[t].size(); ++i) {
        speeds_[t][i] = momentum * speeds_[t][i] + gradients_[t][i];
        parameters_[t][i] -= learning_rate * speeds_[t][i];
      }
  }

  std::vector<float> parameters_[tensors], gradients_[tensors], speeds_[tensors];
  gyreGrad_t grad_ = nullptr;
};

// The mean squared error of an epoch over all ranks' samples.
float train_epoch(Perceptron& model, const gyreSampler_t& sampler, std::uint64_t epoch,
                  gyreComm_t comm) {
  std::uint64_t own = 0;
  check(gyreSamplerCount(&sampler, &own));
  float sums[2] = {0, static_cast<float>(own)};
  for (std::uint64_t begin = 0; begin < own; begin += batch) {
    std::vector<Sample> part;
    for (std::uint64_t i = begin; i < std::min(begin + batch, own); ++i) {
      std::uint64_t number = 0;
      check(gyreSamplerGet(&sampler, epoch, i, &number));
      part.push_back(sample(number));
    }
    sums[0] += model.step(part);
  }
  check(gyreAllReduce(sums, sums, 2, gyreFloat, gyreSum, comm, nullptr));
  return sums[0] / sums[1];
}

}  // namespace

int main() {
  const gyreComm_t comm = example::join_job();
  gyreSampler_t sampler = {};
  check(gyreCommUserRank(comm, &sampler.rank));
  check(gyreCommCount(comm, &sampler.ranks));
  sampler.samples = samples;
  sampler.shuffle = 1;
  float loss = 0, loss_at_first = 0;
  {
    Perceptron model(comm);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      loss = train_epoch(model, sampler, static_cast<std::uint64_t>(epoch), comm);
      if (epoch == 0) loss_at_first = loss;
      if (sampler.rank == 0 && epoch % 10 == 9)
        std::printf("epoch %d: loss %.5f\n", epoch + 1, loss);
    }
    model.compare();
    if (sampler.rank == 0) std::printf("parameters: %016" PRIx64 "\n", model.digest());
  }
  check(gyreCommDestroy(comm));
  return loss < loss_at_first / 10 ? 0 : 1;
}
