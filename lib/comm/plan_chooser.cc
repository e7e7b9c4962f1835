#include "lib/comm/plan_chooser.h"

#include "lib/base/log.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::comm {
namespace {

// All blocks together; a v-function counts them so. What a rank alone knows is no ground to choose
// on.
std::uint64_t bytes_to_choose_on(const Request& request, int size) {
  if (request.function == Function::all_to_all_v) return tune::CallSize::private_bytes;
  if (request.tables != nullptr) return request.block_bytes();
  const BlockCounts blocks = block_counts(request.collective, size, true);
  return request.block_bytes() * std::max(blocks.input, blocks.output);
}

}  // namespace

Result<PlanChooser::PlanChoice> PlanChooser::choose(const Request& request,
                                                    const tune::TuningInputs& inputs) {
  PlanChoice chosen;
  chosen.bytes = bytes_to_choose_on(request, size_);
  const tune::CallSize question{request.collective, chosen.bytes, function_name(request.function)};
  GYRE_ASSIGN(chosen.choice, tune::choose(inputs, allowed_, question));
  const bool is_new = !plans_.contains({chosen.choice.algorithm, request.collective, request.root});
  GYRE_ASSIGN(chosen.by_channel, find(*chosen.choice.algorithm, request));
  chosen.plan = &chosen.by_channel.front();
  // The least piece of each chunk of a message, a cache line, has to fit the slot.
  if (const std::uint64_t least = 64ULL * chosen.plan->message_chunks(); least > inputs.slot_bytes)
    return invalid_usage(fmt::format("{} for {} ranks needs slots of {} bytes: raise GYRE_BUFFSIZE",
                                     chosen.choice.algorithm->name, size_, least));
  if (is_new)
    log_info(Subsystem::tuning, "all ranks choose {} with {} for {} of {} bytes and the like",
             chosen.choice.algorithm->name, plan::protocol_name(chosen.choice.protocol),
             plan::collective_name(request.collective), chosen.bytes);
  return chosen;
}

plan::PlanRequest PlanChooser::wish(const Request& request) const {
  plan::PlanRequest wanted;
  wanted.collective = request.collective;
  wanted.rank_count = size_;
  wanted.rank = rank_;
  wanted.root = request.root;
  if (layout_ != nullptr) {
    wanted.order = layout_->order();
    wanted.hosts = layout_->equal_hosts();
  }
  return wanted;
}

Result<std::span<const plan::Plan>> PlanChooser::find(const plan::Algorithm& algorithm,
                                                      const Request& request) {
  const Key key{&algorithm, request.collective, request.root};
  if (const auto known = plans_.find(key); known != plans_.end()) return std::span(known->second);
  plan::PlanRequest wanted = wish(request);
  std::vector<plan::Plan> made;
  if (algorithm.follows_ring && !rings_.empty()) {
    for (const std::vector<std::int32_t>& ring : rings_) {
      wanted.order = std::ranges::is_sorted(ring) ? std::vector<std::int32_t>() : ring;
      GYRE_ASSIGN(plan::Plan one, plan::build_plan(algorithm, wanted));
      made.push_back(std::move(one));
    }
  } else {
    GYRE_ASSIGN(plan::Plan one, plan::build_plan(algorithm, wanted));
    made.push_back(std::move(one));
  }
  return std::span(plans_.emplace(key, std::move(made)).first->second);
}

}  // namespace gyre::comm
