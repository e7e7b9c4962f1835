#include "tools/pytorch/src/average_hook.h"

#include "tools/pytorch/src/shared_memory.h"

namespace gyre_torch {

c10::intrusive_ptr<AverageHook::Future> AverageHook::runHook(c10d::GradBucket& bucket) {
  const at::Tensor& gradients = bucket.getBuffer();
  move_to_shared(gradients);
  if (when_ == When::beside || !gradients.is_cpu()) {
    Tensors tensors{gradients};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    return state_->allreduce(tensors, options)->getFuture();
  }
  auto mean = begin(gradients);
  if (bucket.isLast()) finish();
  return mean;
}

c10::intrusive_ptr<AverageHook::Future> AverageHook::begin(const at::Tensor& gradients) {
  state_->begin_average(gradients);
  auto mean = c10::make_intrusive<Future>(c10::TensorType::get());
  begun_.emplace_back(mean, gradients);
  return mean;
}

void AverageHook::finish() {
  const auto begun = std::exchange(begun_, {});
  state_->finish_averages();
  for (const auto& [mean, gradients] : begun) mean->markCompleted(gradients);
}

}  // namespace gyre_torch
