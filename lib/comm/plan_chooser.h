// PlanChooser: the plan that carries a call out. The tuner chooses it. Each plan is built once and
// kept for the communicator's life.
#pragma once

#include "lib/call/request.h"
#include "lib/comm/rank_layout.h"
#include "lib/plan/plan.h"
#include "lib/tune/choice.h"

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace gyre::comm {

class PlanChooser {
 public:
  PlanChooser(int rank, int size, tune::Allowed allowed)
      : rank_(rank), size_(size), allowed_(std::move(allowed)) {}

  struct PlanChoice {
    const plan::Plan* plan = nullptr;  // of the first channel; it stays
    // Of channel i, element i modulo their number. They are alike but for the order of ranks.
    std::span<const plan::Plan> by_channel;
    tune::Choice choice;
    std::uint64_t bytes = 0;  // that it was made on
  };
  // Before the first call: plans follow it from then on.
  void follow(const RankLayout& layout) { layout_ = &layout; }
  // The same of rings, which channels take in turn.
  void follow(std::vector<std::vector<std::int32_t>> rings) { rings_ = std::move(rings); }
  Result<PlanChoice> choose(const Request& request, const tune::TuningInputs& inputs);

 private:
  Result<std::span<const plan::Plan>> find(const plan::Algorithm& algorithm,
                                           const Request& request);
  plan::PlanRequest wish(const Request& request) const;

  const int rank_, size_;
  const tune::Allowed allowed_;
  const RankLayout* layout_ = nullptr;            // null: ranks as they are numbered
  std::vector<std::vector<std::int32_t>> rings_;  // none: one, as the layout has it
  using Key = std::tuple<const plan::Algorithm*, plan::Collective, int>;  // int: the root
  std::map<Key, const std::vector<plan::Plan>> plans_;                    // by channel
};

}  // namespace gyre::comm
