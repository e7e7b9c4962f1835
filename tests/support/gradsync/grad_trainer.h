// A rank's replica with the memory of its tensors, and gradients whose mean is known exactly.
#pragma once

#include "tests/support/base/mentions.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gyre::tests {

struct Model {
  // Names, counts; all float32.
  std::vector<std::pair<std::string, std::size_t>> shapes = {{"embedding", 3000},
                                                             {"fc.weight", 701},
                                                             {"fc.bias", 7},
                                                             {"head.weight", 64},
                                                             {"head.bias", 1}};
  bool views = true;
};

// A rank's replica, and the memory of its tensors.
class Trainer {
 public:
  Trainer(gyreComm_t comm, const Model& model, const gyreGradConfig_t& config, float first = 0)
      : views_(model.views) {
    for (const auto& [name, count] : model.shapes) {
      parameters_.emplace_back(count, first);
      gradients_.emplace_back(model.views ? 0 : count, 0.0F);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      tensors_.push_back({model.shapes[i].first.c_str(), parameters_[i].size(), gyreFloat,
                          parameters_[i].data(), views_ ? nullptr : gradients_[i].data()});
    created_ = gyreGradCreate(&grad, comm, tensors_.data(), tensors_.size(), &config);
  }
  ~Trainer() {
    if (grad != nullptr) gyreGradDestroy(grad);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  gyreResult_t created() const { return created_; }
  std::size_t size() const { return parameters_.size(); }
  std::size_t count(std::size_t tensor) const { return parameters_[tensor].size(); }
  float* parameter(std::size_t tensor) { return parameters_[tensor].data(); }
  float* gradient(std::size_t tensor) {
    if (!views_) return gradients_[tensor].data();
    void* view = nullptr;
    gyreGradView(grad, tensor, &view);
    return static_cast<float*>(view);
  }
  // Small numbers, exact in every type and sum.
  static float value(int rank, int step, std::size_t tensor, std::size_t i) {
    return static_cast<float>((i * 7 + tensor * 3) % 5 + static_cast<std::size_t>(step)) *
           static_cast<float>(rank + 1);
  }
  void fill(int rank, int step, std::size_t tensor) {
    float* const place = gradient(tensor);
    for (std::size_t i = 0; i < count(tensor); ++i) place[i] = value(rank, step, tensor, i);
  }
  // The backward pass, last tensor first.
  gyreResult_t backward(int rank, int step) {
    for (std::size_t tensor = size(); tensor-- > 0;) {
      fill(rank, step, tensor);
      if (const auto result = gyreGradReady(grad, tensor, nullptr); result != gyreSuccess)
        return result;
    }
    return gyreSuccess;
  }
  // Whether each gradient is `weight` times what rank 0 alone has.
  bool holds(int step, double weight) {
    for (std::size_t tensor = 0; tensor < size(); ++tensor)
      for (std::size_t i = 0; i < count(tensor); ++i)
        if (gradient(tensor)[i] != static_cast<float>(value(0, step, tensor, i) * weight))
          return false;
    return true;
  }

  gyreGrad_t grad = nullptr;

 private:
  const bool views_;
  std::vector<std::vector<float>> parameters_, gradients_;
  std::vector<gyreGradTensor_t> tensors_;
  gyreResult_t created_;
};

inline gyreGradConfig_t config_of(std::size_t bucket_bytes) {
  gyreGradConfig_t config = GYRE_GRAD_CONFIG_INITIALIZER;
  config.bucketBytes = bucket_bytes;
  config.firstBucketBytes = std::min<std::size_t>(bucket_bytes, 256);
  config.timeoutMs = 20000;
  return config;
}

// 1 + 2 + ... + n, of n: the mean of value() over ranks is this times rank 0's.
inline double mean_weight(int n) { return (n + 1) / 2.0; }

// Sums instead of averaging, and halves afterwards.
struct Halving {
  int begun = 0, finished = 0;
  bool fails = false;
  static gyreResult_t begin(void* user, const gyreGradBucket_t* bucket, gyreComm_t comm,
                            gyreStream_t stream) {
    auto& self = *static_cast<Halving*>(user);
    if (self.fails && bucket->index == 1) return gyreSystemError;
    ++self.begun;
    return gyreAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, gyreSum, comm,
                         stream);
  }
  static gyreResult_t finish(void* user, const gyreGradBucket_t* bucket) {
    ++static_cast<Halving*>(user)->finished;
    for (std::size_t i = 0; i < bucket->count; ++i) static_cast<float*>(bucket->data)[i] *= 0.5F;
    return gyreSuccess;
  }
};

}  // namespace gyre::tests
