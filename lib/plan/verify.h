// verify: the proof that plans do what their collective promises, before a byte moves. See
// symbolic_run.h for the proof and why one schedule is enough.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/plan.h"

#include <cstdint>
#include <span>
#include <string>

namespace gyre::plan {

// What shows in one plan without running it: indices in range, sizes, flags.
Status check_form(const Plan& plan);

struct Proof {
  std::uint32_t roundings = 0;  // most additions that one contribution goes through
  bool in_rank_order = true;    // each sum is made lower rank first
  // Whether every message may be delivered as plan::delivery says; if not, the reason.
  bool direct = false;
  bool direct_in_place = false;
  std::string why_not_direct;
  std::string why_not_direct_in_place;
  // Of all moves of a direct run, those that NVLink's switch can do: all that they take is pulled
  // from one place in the inputs of all ranks, or all that they send is pushed to one place in
  // their outputs. Nothing more is to be shown for them than direct delivery.
  std::uint64_t switch_sums = 0, switch_stores = 0;
};

// The proof for the plans of all ranks, by rank, or what is wrong: with even and (unless the plans
// demand chunks of one size) uneven chunks, in
// and out of place, at the declared least depth, one more, 8 and no limit, and delivered directly
// as far as the plans declare it.
Result<Proof> prove(std::span<const Plan> plans, std::uint64_t seed = 1);

// Builds the plans of all ranks and proves them and what the algorithm declares.
Status verify(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace gyre::plan
