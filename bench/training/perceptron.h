// A perceptron with one hidden layer that learns the outputs of a fixed teacher of the same shape.
// A step costs next to nothing, and the loss keeps falling.
#pragma once

#include <gyre/gradsync.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace gyre::bench {

class Perceptron {
 public:
  static constexpr std::size_t inputs = 24, hidden = 48, outputs = 6, batch = 16, test_rows = 256;
  static constexpr std::size_t tensor_count = 2;

  Perceptron() : weights_(shape()), gradients_(shape()), teacher_(shape()) {
    std::mt19937 random(7);
    draw(weights_, random);
    draw(teacher_, random);
    for (std::size_t i = 0; i < test_rows * inputs; ++i) test_.push_back(normal(random));
  }

  std::array<gyreGradTensor_t, tensor_count> tensors() {
    return {{{"hidden", weights_[0].size(), gyreFloat, weights_[0].data(), gradients_[0].data()},
             {"output", weights_[1].size(), gyreFloat, weights_[1].data(), gradients_[1].data()}}};
  }

  // Of the mean squared error over a new batch.
  void compute_gradients(std::mt19937& random) {
    for (auto& gradient : gradients_) gradient.assign(gradient.size(), 0);
    std::array<float, inputs> row;
    for (std::size_t i = 0; i < batch; ++i) {
      for (float& one : row) one = normal(random);
      add_gradient(row.data());
    }
  }

  void update(float rate) {
    for (std::size_t t = 0; t < tensor_count; ++t)
      for (std::size_t i = 0; i < weights_[t].size(); ++i)
        weights_[t][i] -= rate * gradients_[t][i];
  }

  double test_loss() const {
    double sum = 0;
    for (std::size_t i = 0; i < test_rows; ++i) {
      const Activations mine = forward(weights_, &test_[i * inputs]);
      const Activations right = forward(teacher_, &test_[i * inputs]);
      for (std::size_t o = 0; o < outputs; ++o)
        sum += std::pow(mine.output[o] - right.output[o], 2) / outputs;
    }
    return sum / test_rows;
  }

 private:
  using Weights = std::array<std::vector<float>, tensor_count>;
  struct Activations {
    std::array<float, hidden> middle;
    std::array<float, outputs> output;
  };

  static Weights shape() {
    return {std::vector<float>(inputs * hidden), std::vector<float>(hidden * outputs)};
  }
  static float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }
  static void draw(Weights& weights, std::mt19937& random) {
    for (float& one : weights[0]) one = normal(random) / std::sqrt(static_cast<float>(inputs));
    for (float& one : weights[1]) one = normal(random) / std::sqrt(static_cast<float>(hidden));
  }

  static Activations forward(const Weights& weights, const float* row) {
    Activations found{};
    for (std::size_t h = 0; h < hidden; ++h) {
      float sum = 0;
      for (std::size_t i = 0; i < inputs; ++i) sum += weights[0][h * inputs + i] * row[i];
      found.middle[h] = std::tanh(sum);
    }
    for (std::size_t o = 0; o < outputs; ++o)
      for (std::size_t h = 0; h < hidden; ++h)
        found.output[o] += weights[1][o * hidden + h] * found.middle[h];
    return found;
  }

  void add_gradient(const float* row) {
    const Activations mine = forward(weights_, row);
    const Activations right = forward(teacher_, row);
    std::array<float, hidden> behind{};
    for (std::size_t o = 0; o < outputs; ++o) {
      const float error =
          2 * (mine.output[o] - right.output[o]) / static_cast<float>(outputs * batch);
      for (std::size_t h = 0; h < hidden; ++h) {
        gradients_[1][o * hidden + h] += error * mine.middle[h];
        behind[h] += error * weights_[1][o * hidden + h];
      }
    }
    for (std::size_t h = 0; h < hidden; ++h) {
      const float slope = behind[h] * (1 - mine.middle[h] * mine.middle[h]);
      for (std::size_t i = 0; i < inputs; ++i) gradients_[0][h * inputs + i] += slope * row[i];
    }
  }

  Weights weights_, gradients_;
  Weights teacher_;
  std::vector<float> test_;
};

}  // namespace gyre::bench
