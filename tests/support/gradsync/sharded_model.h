// A rank's part of a sharded model, whose samples are spread over the ranks: any number of ranks
// trains alike.
#pragma once

#include "kernels/cpu/elementwise.h"
#include "tests/support/base/mentions.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>

#include <cstddef>
#include <string>
#include <vector>

namespace gyre::tests {

struct Shape {
  const char* name;
  std::size_t count, unit;
};
inline const std::vector<Shape> shapes = {{"embedding", 130, 0},
                                          {"embedding.bias", 7, 0},
                                          {"fc.weight", 1000, 1},
                                          {"head.weight", 64, 2},
                                          {"head.bias", 1, 2}};

inline float first_value(std::size_t tensor, std::size_t i) {
  return static_cast<float>((i * 5 + tensor) % 17) / 8 - 1;
}

// The loss of sample s is half the squared distance of all parameters from its targets.
inline constexpr int samples = 12;
inline float target(int sample, int step, std::size_t tensor, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(sample * 3 + step) + i * 7 + tensor) % 11) /
         16;
}
// The mean gradient of rank `rank`'s samples.
inline float gradient_of(float value, int rank, int n, int step, std::size_t tensor,
                         std::size_t i) {
  float sum = 0;
  for (int sample = rank; sample < samples; sample += n)
    sum += value - target(sample, step, tensor, i);
  return sum / static_cast<float>(samples / n);
}

inline int initialize(void*, std::size_t tensor, void* values) {
  for (std::size_t i = 0; i < shapes[tensor].count; ++i)
    static_cast<float*>(values)[i] = first_value(tensor, i);
  return 0;
}
// The same in bfloat16.
inline int initialize_narrow(void*, std::size_t tensor, void* values) {
  std::vector<float> wide(shapes[tensor].count);
  initialize(nullptr, tensor, wide.data());
  kernels::convert(
      {.source = wide.data(), .to = ElementType::bfloat16, .target = values, .count = wide.size()});
  return 0;
}

using Values = std::vector<std::vector<float>>;  // by tensor

// A rank's part of a model of float32 or bfloat16.
class ShardedModel {
 public:
  ShardedModel(gyreComm_t comm, gyreGradShardsConfig_t config, gyreDataType_t type = gyreFloat)
      : type_(static_cast<ElementType>(type)) {
    gyreCommUserRank(comm, &rank_);
    gyreCommCount(comm, &n_);
    std::vector<gyreGradShardTensor_t> tensors;
    for (const Shape& shape : shapes)
      tensors.push_back({shape.name, shape.count, type, shape.unit});
    if (config.initialize == nullptr)
      config.initialize = type == gyreFloat ? initialize : initialize_narrow;
    created = gyreGradShardsCreate(&shards, comm, tensors.data(), tensors.size(), &config);
  }
  ~ShardedModel() {
    if (shards != nullptr) gyreGradShardsDestroy(shards);
  }
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // All parameters, as they lie there when their units are gathered.
  Values parameters() {
    Values all;
    for (std::size_t tensor = 0; tensor < shapes.size(); ++tensor) {
      void* place = nullptr;
      if (gyreGradShardsGather(shards, shapes[tensor].unit) != gyreSuccess ||
          gyreGradShardsParameter(shards, tensor, &place) != gyreSuccess)
        return {};
      all.push_back(widened(place, shapes[tensor].count));
    }
    return all;
  }
  // Forward and backward pass. `spoil` may change a gradient, or leave it out by returning false.
  template <typename Spoil>
  gyreResult_t pass(int step, const Spoil& spoil) {
    for (std::size_t unit = 0; unit < 3; ++unit) {
      if (const auto done = gyreGradShardsGather(shards, unit); done != gyreSuccess) return done;
      gyreGradShardsRelease(shards, unit);
    }
    for (std::size_t tensor = shapes.size(); tensor-- > 0;) {
      const std::size_t unit = shapes[tensor].unit;
      void *parameter = nullptr, *gradient = nullptr;
      if (const auto done = gyreGradShardsGather(shards, unit); done != gyreSuccess) return done;
      gyreGradShardsParameter(shards, tensor, &parameter);
      std::vector<float> values = widened(parameter, shapes[tensor].count);
      gyreGradShardsRelease(shards, unit);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = gradient_of(values[i], rank_, n_, step, tensor, i);
      if (!spoil(tensor, values)) continue;
      if (const auto done = gyreGradShardsGradient(shards, tensor, &gradient); done != gyreSuccess)
        return done;
      kernels::convert(
          {.source = values.data(), .to = type_, .target = gradient, .count = values.size()});
      if (const auto done = gyreGradShardsReady(shards, tensor); done != gyreSuccess) return done;
    }
    return gyreSuccess;
  }
  gyreResult_t pass(int step) {
    return pass(step, [](std::size_t, std::vector<float>&) { return true; });
  }

  gyreGradShards_t shards = nullptr;
  gyreResult_t created;

 private:
  std::vector<float> widened(const void* place, std::size_t count) const {
    std::vector<float> values(count);
    kernels::convert(
        {.from = type_, .source = place, .target = values.data(), .count = values.size()});
    return values;
  }

  const ElementType type_;
  int rank_ = 0, n_ = 1;
};

inline gyreGradShardsConfig_t config_of(int stage, int factor = 0) {
  gyreGradShardsConfig_t config = GYRE_GRAD_SHARDS_CONFIG_INITIALIZER;
  config.stage = stage;
  config.factor = factor;
  config.timeoutMs = 20000;
  return config;
}

inline gyreGradStep_t quick_step() {
  gyreGradStep_t step = GYRE_GRAD_STEP_INITIALIZER;
  step.learningRate = 0.05F;
  return step;
}

}  // namespace gyre::tests
