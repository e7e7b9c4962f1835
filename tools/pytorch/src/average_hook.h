// AverageHook: DistributedDataParallel calls it with each bucket of gradients that its backward
// pass has finished, to get their mean over the ranks.
#pragma once

#include "tools/pytorch/src/process_group_gyre.h"

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

namespace gyre_torch {

class AverageHook final : public c10d::CppCommHookInterface<c10::intrusive_ptr<ProcessGroupGyre>> {
 public:
  // When buckets are reduced: beside the backward pass, or all of them by its thread, at the last
  // one. On devices it is always beside.
  enum class When { beside, at_the_last };
  AverageHook(c10::intrusive_ptr<ProcessGroupGyre> backend, When when)
      : CppCommHookInterface(std::move(backend)), when_(when) {}

  using Future = c10::ivalue::Future;
  c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override;

 private:
  c10::intrusive_ptr<Future> begin(const at::Tensor& gradients);
  void finish();

  const When when_;
  // Until the last one. Futures of the works would be marked by one more thread.
  std::vector<std::pair<c10::intrusive_ptr<Future>, at::Tensor>> begun_;
};

}  // namespace gyre_torch
