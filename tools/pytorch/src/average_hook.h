// AverageHook: DistributedDataParallel calls it with each bucket of gradients that its backward
// pass has finished, to get their mean over the ranks.
#pragma once

#include "tools/pytorch/src/process_group_gyre.h"

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

namespace gyre_torch {

// What one rank has to compute with.
struct RankCores {
  std::int64_t host;           // a number of its name
  std::int64_t threads;        // of its computations
  std::int64_t cores;          // that it may use
  std::int64_t cores_of_host;  // in all
};
// Whether the ranks are all on one host, and keep all its cores busy: then there is none that could
// reduce beside the backward pass.
bool leave_no_core(const std::vector<RankCores>& ranks);

class AverageHook final : public c10d::CppCommHookInterface<c10::intrusive_ptr<ProcessGroupGyre>> {
 public:
  // When buckets are reduced: beside the backward pass, or all of them by its thread, at the last
  // one. On devices it is always beside. Ranks have to do the same: without `when`, they tell each
  // other of their cores at the first bucket.
  enum class When { beside, at_the_last };
  AverageHook(c10::intrusive_ptr<ProcessGroupGyre> backend, const RankCores& own,
              std::optional<When> when)
      : CppCommHookInterface(std::move(backend)), own_(own), when_(when) {}

  using Future = c10::ivalue::Future;
  c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override;

 private:
  bool ends_here(const c10d::GradBucket& bucket);
  When agree();
  c10::intrusive_ptr<Future> average_beside(const at::Tensor& gradients);
  c10::intrusive_ptr<Future> begin(const at::Tensor& gradients);
  void finish();

  const RankCores own_;
  std::optional<When> when_;
  std::optional<std::size_t> last_index_;  // of this pass
  // Until the last one. Futures of the works would be marked by one more thread.
  std::vector<std::pair<c10::intrusive_ptr<Future>, at::Tensor>> begun_;
};

}  // namespace gyre_torch
