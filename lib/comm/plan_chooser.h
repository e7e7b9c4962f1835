// PlanChooser: the plan that carries a call out. The tuner chooses it. Each plan is built once and
// kept for the communicator's life.
#pragma once

#include "lib/call/request.h"
#include "lib/comm/rank_layout.h"
#include "lib/plan/plan.h"
#include "lib/tune/choice.h"

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

namespace gyre::comm {

class PlanChooser {
 public:
  // `slot_bytes`: what the least messages of a plan have to fit.
  PlanChooser(int rank, int size, tune::Allowed allowed, std::uint64_t slot_bytes)
      : rank_(rank), size_(size), allowed_(std::move(allowed)), slot_bytes_(slot_bytes) {}

  struct PlanChoice {
    const plan::Plan* plan = nullptr;  // which stays
    tune::Choice choice;
    std::uint64_t bytes = 0;  // that it was made on
  };
  // Before the first call: plans follow it from then on.
  void follow(const RankLayout& layout) { layout_ = &layout; }
  Result<PlanChoice> choose(const Request& request, const tune::TuningInputs& inputs);

 private:
  Result<const plan::Plan*> find(const plan::Algorithm& algorithm, const Request& request);

  const int rank_, size_;
  const tune::Allowed allowed_;
  const std::uint64_t slot_bytes_;
  const RankLayout* layout_ = nullptr;  // null: ranks as they are numbered
  using Key = std::tuple<const plan::Algorithm*, plan::Collective, int>;  // int: the root
  std::map<Key, std::unique_ptr<const plan::Plan>> plans_;
};

}  // namespace gyre::comm
