// ModelGradients: memory in buckets for the gradients of a whole model, of one rank and one step,
// for gradients that are handed over all at once.
#pragma once

#include "lib/gradsync/live_bucket.h"

#include <span>
#include <vector>

namespace gyre::gradsync {

class ModelGradients {
 public:
  // Each tensor's gradient lies with the caller.
  static Result<ModelGradients> make(std::span<const Tensor> tensors);

  const std::vector<LiveBucket>& buckets() const { return buckets_; }
  // The callers' gradients; zeros; and what lies here to the callers' gradients.
  void take(std::span<const Tensor> tensors) const;
  void clear(std::span<const Tensor> tensors) const;
  void give(std::span<const Tensor> tensors) const;

 private:
  std::vector<LiveBucket> buckets_;
};

}  // namespace gyre::gradsync
