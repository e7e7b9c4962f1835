#include "bench/training/train/model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace gyre::training {

// Box and Muller's normal numbers, since the standard library's differ from one to the next.
void initialize(const TensorShape& shape, std::size_t tensor, std::uint64_t seed, float* values) {
  std::fill_n(values, shape.count, shape.value);
  if (shape.deviation == 0) return;
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + tensor);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 1) * 0x1p-53; };
  for (std::size_t i = 0; i < shape.count; ++i) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    values[i] += shape.deviation * static_cast<float>(radius * std::cos(angle));
  }
}

}  // namespace gyre::training
