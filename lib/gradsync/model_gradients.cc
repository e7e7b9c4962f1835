#include "lib/gradsync/model_gradients.h"

#include <numeric>

namespace gyre::gradsync {
namespace {

constexpr BucketLimits limits{25U << 20, 25U << 20};

// act(bucket, slice, tensor) for each tensor.
template <typename Act>
void for_each(const std::vector<LiveBucket>& buckets, std::span<const Tensor> tensors,
              const Act& act) {
  for (const LiveBucket& bucket : buckets)
    for (const Slice& slice : bucket.plan().slices) act(bucket, slice, tensors[slice.tensor]);
}

}  // namespace

Result<ModelGradients> ModelGradients::make(std::span<const Tensor> tensors) {
  ModelGradients made;
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (Bucket& plan : lay_out(tensors, order, limits)) {
    GYRE_ASSIGN(LiveBucket bucket, LiveBucket::make(std::move(plan), tensors, std::nullopt));
    made.buckets_.push_back(std::move(bucket));
  }
  return made;
}

void ModelGradients::take(std::span<const Tensor> tensors) const {
  for_each(buckets_, tensors,
           [](const LiveBucket& bucket, const Slice& slice, const Tensor& tensor) {
             bucket.take(slice, tensor);
           });
}

void ModelGradients::clear(std::span<const Tensor> tensors) const {
  for_each(buckets_, tensors,
           [](const LiveBucket& bucket, const Slice& slice, const Tensor& tensor) {
             bucket.clear(slice, tensor);
           });
}

void ModelGradients::give(std::span<const Tensor> tensors) const {
  for_each(buckets_, tensors,
           [](const LiveBucket& bucket, const Slice& slice, const Tensor& tensor) {
             bucket.give(slice, tensor, 1);
           });
}

}  // namespace gyre::gradsync
