#include "lib/plan/verify.h"

#include "lib/plan/symbolic_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace gyre::plan {

namespace {

Status check_chunks(const Plan& plan, const Step& step) {
  const Chunks& chunks = step.chunks;
  const bool in_range = chunks.repeat > 0 && chunks.wrap > 0 && chunks.first < chunks.wrap &&
                        chunks.span <= chunks.wrap && chunks.wrap <= max_chunks &&
                        std::abs(std::int64_t{chunks.stride}) <= chunks.wrap;
  if (!in_range) return internal_error("chunk indices out of range");
  const std::uint64_t end = std::uint64_t{chunks.base} + chunks.wrap;
  for (const Buffer buffer : {step.local, step.store}) {
    const bool is_scratch = buffer == Buffer::scratch;
    const std::uint32_t count = is_scratch ? plan.scratch_chunks() : plan.chunk_count();
    if (end > count) return internal_error(fmt::format("chunks up to {} of {}", end, count));
  }
  return {};
}

Status check_links(const LaneSteps& lane, const LinkRange& range) {
  const std::size_t count = lane.links.size();
  if (range.count == 0) return {};
  const bool in_range = range.first < count && range.count <= count &&
                        std::abs(int{range.stride}) <= static_cast<std::int64_t>(count);
  return in_range ? Status() : internal_error("link indices out of range");
}

Status check_step(const Plan& plan, const LaneSteps& lane, std::size_t index) {
  const Step& step = lane.steps[index];
  const bool is_known = step.local <= Buffer::scratch && step.store <= Buffer::scratch;
  if (!is_known) return internal_error("there is no such buffer");
  if (step.store == Buffer::input) return internal_error("it stores to the input");
  if (!step.receives() && !step.sends() && !step.stores()) {
    return internal_error("it does nothing");
  }
  const bool is_token = step.always_sends() && !step.finishes() && step.local == Buffer::none &&
                        step.store == Buffer::none;
  if (step.chunks.span == 0 && !is_token) return internal_error("it has no chunks and is no token");
  if (step.chunks.span > 0 && !step.receives() && step.local == Buffer::none) {
    return internal_error("it has no source");
  }
  if (step.chunks.span > 0 && step.sized_by() == Buffer::none) {
    return internal_error("it touches no buffer, so nothing says how long a message is");
  }
  constexpr std::uint16_t known = step_flag::finish | step_flag::paired | step_flag::pack |
                                  step_flag::always_send | step_flag::staged;
  if ((step.flags & ~known) != 0) return internal_error("it has a reserved flag");
  if (step.packed()) {
    const bool is_one_move = !step.paired() && step.recv_stride == 0 && step.send_stride == 0 &&
                             (index == 0 || !lane.steps[index - 1].paired());
    if (!is_one_move) return internal_error("what is packed has one partner and no pair");
  }
  if (step.paired()) {
    const bool fits = index + 1 < lane.steps.size() && !lane.steps[index + 1].paired() &&
                      lane.steps[index + 1].chunks.repeat == step.chunks.repeat;
    if (!fits) return internal_error("the step after it is no partner for a pair");
  }
  GYRE_TRY(check_chunks(plan, step));
  GYRE_TRY(check_links(lane, step.recv()));
  GYRE_TRY(check_links(lane, step.send()));
  const std::uint64_t together = std::uint64_t{step.chunks.span} * step.repeats_of_move();
  if ((step.sends() || step.receives()) && together > plan.message_chunks()) {
    return internal_error(fmt::format("{} chunks in a message, and {} were declared", together,
                                      plan.message_chunks()));
  }
  return {};
}

Status check_lane(const Plan& plan, const LaneSteps& lane) {
  if (lane.steps.size() > max_steps) {
    return internal_error(fmt::format("{} steps, more than {}", lane.steps.size(), max_steps));
  }
  for (std::size_t i = 0; i < lane.links.size(); ++i) {
    const bool exists = lane.links[i].peer >= 0 && lane.links[i].peer < plan.rank_count();
    if (!exists) return internal_error(fmt::format("a link to rank {}", lane.links[i].peer));
    if (i > 0 && !(lane.links[i - 1] < lane.links[i])) return internal_error("links not ascending");
  }
  for (std::size_t i = 0; i < lane.steps.size(); ++i) {
    GYRE_TRY(check_step(plan, lane, i).while_doing(fmt::format("step {}", i)));
  }
  return {};
}

// What all ranks must agree on.
Status check_family(std::span<const Plan> plans) {
  if (plans.empty()) return internal_error("no plans");
  const PlanParts& first = plans.front().parts();
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const PlanParts& parts = plans[rank].parts();
    const bool agrees = parts.rank == static_cast<std::int32_t>(rank) &&
                        parts.rank_count == static_cast<std::int32_t>(plans.size()) &&
                        parts.collective == first.collective && parts.root == first.root &&
                        parts.chunk_count == first.chunk_count &&
                        parts.min_depth == first.min_depth && parts.owners == first.owners &&
                        parts.equal_chunks == first.equal_chunks && parts.direct == first.direct &&
                        parts.direct_in_place == first.direct_in_place &&
                        plans[rank].max_lanes() == plans.front().max_lanes();
    if (!agrees) return internal_error(fmt::format("rank {} has a plan of another family", rank));
    GYRE_TRY(check_form(plans[rank]).while_doing(fmt::format("rank {}", rank)));
  }
  return {};
}

std::string describe(const SymbolicMachine& machine) {
  constexpr const char* delivering[] = {"staged", "direct", "mixed", "carried"};
  return fmt::format("{}, {}, {}, depth {}", machine.in_place ? "in place" : "out of place",
                     machine.even ? "even" : "uneven",
                     delivering[static_cast<int>(machine.delivering)],
                     machine.depth == 0 ? "without limit" : std::to_string(machine.depth));
}

Status run(SymbolicRun& symbolic_run, const SymbolicMachine& machine) {
  return symbolic_run.run(machine).while_doing(describe(machine));
}

// Chunks of one size and a short last one, and of any length; plans may demand one size.
std::vector<bool> evenness(const Plan& plan) {
  return plan.equal_chunks() ? std::vector<bool>{true} : std::vector<bool>{true, false};
}

// At the smallest depth: a deeper FIFO allows more moves, and changes nothing that arrives
// (symbolic_run.h). Without a limit first, so that other faults are not reported as deadlocks.
Status run_staged(SymbolicRun& symbolic_run, const Plan& plan, std::uint64_t seed) {
  const std::uint32_t depth = plan.min_depth();
  GYRE_TRY(run(symbolic_run, {0, false, true, DeliveryPolicy::staged, seed++}));
  for (const bool in_place : {false, true})
    for (const bool even : evenness(plan))
      GYRE_TRY(run(symbolic_run, {depth, in_place, even, DeliveryPolicy::staged, seed++}));
  return {};
}

Status run_direct(SymbolicRun& symbolic_run, const Plan& plan, bool in_place, std::uint64_t seed) {
  const std::uint32_t depth = plan.min_depth();
  for (const bool even : evenness(plan))
    for (const auto delivering :
         {DeliveryPolicy::direct, DeliveryPolicy::mixed, DeliveryPolicy::carried})
      GYRE_TRY(run(symbolic_run, {depth, in_place, even, delivering, seed++}));
  return {};
}

}  // namespace

Status check_form(const Plan& plan) {
  const PlanParts& parts = plan.parts();
  if (parts.chunk_count < 1 || parts.chunk_count > max_chunks || parts.min_depth < 1 ||
      parts.message_chunks < 1 || parts.message_chunks > max_chunks) {
    return internal_error("chunk count, message or depth out of range");
  }
  if (!parts.owners.empty() && parts.owners.size() != parts.chunk_count) {
    return internal_error("not one owner for each chunk");
  }
  if (parts.lanes.size() > plan.max_lanes()) return internal_error("more lanes than any rank has");
  for (std::size_t lane = 0; lane < parts.lanes.size(); ++lane) {
    GYRE_TRY(check_lane(plan, parts.lanes[lane]).while_doing(fmt::format("lane {}", lane)));
  }
  return {};
}

Result<Proof> prove(std::span<const Plan> plans, std::uint64_t seed) {
  GYRE_TRY(check_family(plans));
  SymbolicRun symbolic_run(plans);
  GYRE_TRY(run_staged(symbolic_run, plans.front(), seed));

  Proof proof;
  const Status direct = run_direct(symbolic_run, plans.front(), false, seed);
  if (direct.ok()) {
    proof.switch_sums = symbolic_run.switch_sums();
    proof.switch_stores = symbolic_run.switch_stores();
  }
  const Status direct_in_place = run_direct(symbolic_run, plans.front(), true, seed);
  proof.direct = direct.ok();
  proof.why_not_direct = direct.message();
  proof.direct_in_place = direct_in_place.ok();
  proof.why_not_direct_in_place = direct_in_place.message();
  if (plans.front().direct()) GYRE_TRY(direct);
  if (plans.front().direct_in_place()) GYRE_TRY(direct_in_place);
  proof.roundings = symbolic_run.roundings();
  proof.in_rank_order = symbolic_run.in_rank_order();
  return proof;
}

Status verify(const Algorithm& algorithm, const PlanRequest& request) {
  GYRE_ASSIGN(const std::vector<Plan> plans, build_plans(algorithm, request));
  const std::string what = fmt::format("verifying {} {} of {} ranks", algorithm.name,
                                       collective_name(request.collective), request.rank_count);
  Result<Proof> proof = prove(plans);
  if (!proof.ok()) return std::move(proof).status().while_doing(what);
  if (sums(request.collective) && algorithm.order == SumOrder::rank && !proof->in_rank_order) {
    return internal_error("the sums are not in rank order").while_doing(what);
  }
  return {};
}

}  // namespace gyre::plan
