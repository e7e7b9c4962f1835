#include "tools/pytorch/src/average_hook.h"

#include "tools/pytorch/src/shared_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <algorithm>

namespace gyre_torch {

bool leave_no_core(const std::vector<RankCores>& ranks) {
  std::int64_t threads = 0, all_cores = 0, most_cores = 0;
  for (const RankCores& rank : ranks) {
    if (rank.host != ranks.front().host) return false;
    threads += rank.threads;
    all_cores += rank.cores;
    most_cores = std::max(most_cores, rank.cores);
  }
  // Ranks that are bound to fewer cores than the host has are bound to their own.
  const bool are_bound = most_cores < ranks.front().cores_of_host;
  return threads >= (are_bound ? all_cores : most_cores);
}

// In the first pass over a static graph DDP gives all buckets the first one's number, so that none
// is the last one.
bool AverageHook::ends_here(const c10d::GradBucket& bucket) {
  const bool comes_again = last_index_ && bucket.getIndex() <= *last_index_;
  last_index_ = bucket.isLast() ? std::nullopt : std::optional(bucket.getIndex());
  return bucket.isLast() || comes_again;
}

c10::intrusive_ptr<AverageHook::Future> AverageHook::runHook(c10d::GradBucket& bucket) {
  const at::Tensor& gradients = bucket.getBuffer();
  const bool ends = ends_here(bucket);
  if (gradients.is_sparse()) {
    if (ends) finish();
    return average_beside(gradients);
  }
  move_to_shared(gradients);
  if (gradients.is_cpu() && !when_) when_ = agree();
  if (!gradients.is_cpu() || when_ == When::beside) return average_beside(gradients);
  auto mean = begin(gradients);
  if (ends) finish();
  return mean;
}

c10::intrusive_ptr<AverageHook::Future> AverageHook::average_beside(const at::Tensor& gradients) {
  Tensors tensors{gradients};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  return state_->allreduce(tensors, options)->getFuture();
}

AverageHook::When AverageHook::agree() {
  constexpr std::int64_t facts = 4;
  at::Tensor own = at::tensor({own_.host, own_.threads, own_.cores, own_.cores_of_host}, at::kLong);
  at::Tensor all = at::empty({state_->getSize() * facts}, at::kLong);
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  state_->_allgather_base(all, own, options)->wait();
  const std::int64_t* fact = all.const_data_ptr<std::int64_t>();
  std::vector<RankCores> ranks;
  for (int rank = 0; rank < state_->getSize(); ++rank, fact += facts)
    ranks.push_back({fact[0], fact[1], fact[2], fact[3]});
  return leave_no_core(ranks) ? When::at_the_last : When::beside;
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
