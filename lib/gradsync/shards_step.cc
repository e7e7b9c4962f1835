// The step of a sharded model. It waits for the gradients' mean, updates this rank's share, and
// starts to gather again the units that stay whole.
#include "lib/base/clock.h"
#include "lib/gradsync/shards.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace gyre::gradsync {

Result<ShardStepResult> Shards::step(const gyreGradStep_t& step) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  if (options_.optimizer == gyreGradOwn && step.update == nullptr)
    return invalid_argument("step->update is NULL, and config.optimizer is gyreGradOwn");
  if (options_.optimizer == gyreGradSgd && !options_.has_momentum && step.momentum != 0)
    return invalid_argument(fmt::format(
        "step->momentum = {}, and config.momentum = 0 keeps no memory for it", step.momentum));
  auto call = hold_consensus(deliver_the_rest());
  if (!call.ok()) return give_up(failure_.ok() ? std::move(call).status() : std::move(failure_));
  Status said = verdict(*call);
  if (call->first_failed() >= 0) return give_up(std::move(said));
  if (Status done = confirm(finish_pass()); !done.ok()) return give_up(std::move(done));
  if (!said.ok()) {
    // Orders that differ foresee different units.
    gathered_.clear();
    gather_order_.clear();
    begin_step();
    return said;
  }
  auto squares = sum_squares();
  if (!squares.ok()) return give_up_alone(std::move(squares).status());
  ShardStepResult result;
  result.overflow = squares->overflows();
  result.norm = std::sqrt(squares->value()) * static_cast<double>(step.inverseScale);
  // As torch.nn.utils.clip_grad_norm_ does it.
  constexpr double clip_epsilon = 1e-6;
  const double clip =
      step.maxNorm > 0 ? std::min(1.0, step.maxNorm / (result.norm + clip_epsilon)) : 1.0;
  if (!result.overflow)
    if (Status done = update(step, step.inverseScale * static_cast<float>(clip)); !done.ok())
      return give_up_alone(std::move(done));
  result.step = steps_done_;
  result.moved_bytes = std::exchange(moved_bytes_, 0);
  result.exposed_ns = std::exchange(exposed_ns_, 0);
  begin_step();
  return result;
}

Result<StepConsensus> Shards::hold_consensus(const ConsensusEntry& mine) {
  const std::int64_t began_ns = SystemClock::read();
  auto call = StepConsensus::hold(control_.get(), mine);
  exposed_ns_ += SystemClock::read() - began_ns;
  return call;
}

// Zeros for what was never ready, so that no rank waits for it.
ConsensusEntry Shards::deliver_the_rest() {
  ConsensusEntry entry{.steps_done = steps_done_, .trace = gather_trace_};
  for (std::size_t tensor = tensors_.size(); tensor-- > 0;) {
    if (is_ready_[tensor] != 0) continue;
    entry.missing = static_cast<std::int64_t>(tensor);
  }
  for (std::size_t i = 0; i < units_.size() && entry.missing >= 0; ++i)
    if (LiveUnit& unit = units_[units_.size() - 1 - i]; unit.waiting > 0) {
      if (failure_.ok()) failure_ = open_gradients(unit);
      unit.waiting = 0;
      if (failure_.ok()) failure_ = begin_reductions();
    }
  entry.failure = static_cast<std::int32_t>(failure_.code());
  return entry;
}

Status Shards::verdict(const StepConsensus& call) const {
  if (!failure_.ok()) return failure_;
  if (const int rank = call.first_failed(); rank >= 0)
    return Status(
               Code::RemoteError,
               fmt::format("rank {} could not reduce its gradients; its own error says more", rank))
        .blame({rank});
  if (const int rank = call.first_missing(); rank >= 0)
    return Status(
               Code::Mismatch,
               fmt::format("rank {} never delivered the gradient of {}", rank,
                           call_by_name(tensors_, static_cast<std::size_t>(call.of(rank).missing))))
        .blame({rank});
  for (int rank = 1; rank < call.size(); ++rank)
    if (call.of(rank).steps_done != call.of(0).steps_done)
      return Status(Code::Mismatch, fmt::format("rank {} has made {} steps, and rank 0 {}", rank,
                                                call.of(rank).steps_done, call.of(0).steps_done))
          .blame({rank});
  for (int rank = 1; rank < call.size(); ++rank)
    if (call.of(rank).trace != call.of(0).trace)
      return Status(Code::Mismatch,
                    fmt::format("rank {} gathered other units than rank 0, or in another order: it "
                                "may have received another unit's parameters",
                                rank))
          .blame({rank});
  return {};
}

Status Shards::finish_pass() {
  for (std::size_t i = 0; i < units_.size(); ++i)
    GYRE_TRY(finish_reduction(units_[units_.size() - 1 - i]));
  return release_all();
}

// A group whose reduction failed went on to reduce with the other groups, and their mean is wrong.
// They cannot see that, so all groups tell each other before any rank updates.
Status Shards::confirm(Status mine) {
  if (!replicas_.has_value()) return mine;
  const auto call = hold_consensus({.failure = static_cast<std::int32_t>(mine.code())});
  if (!mine.ok()) return mine;
  return call.ok() ? verdict(*call) : call.status();
}

// Also where a step changes nothing: so all ranks hold the same, whatever went wrong in the pass.
Status Shards::release_all() {
  GYRE_TRY(finish_gathers());
  if (options_.stage < 3) return {};
  for (LiveUnit& unit : units_)
    if (unit.is_whole()) unit.give_whole_back(parameter_pool_);
  return {};
}

Status Shards::finish_reduction(LiveUnit& unit) {
  if (wait_for(reductions_, *unit.reducing) != gyreSuccess)
    return checked(gyreStreamSynchronize(reductions_.stream.get()))
        .while_doing("reducing gradients");
  return {};
}

// Over the group: all groups have the same gradients, bit for bit.
Result<ExactSum> Shards::sum_squares() {
  ExactSum sum;
  std::vector<double> blocks;
  for (const LiveUnit& unit : units_) {
    const std::uint64_t count = unit.layout().share_count;
    blocks.resize(count / kernels::square_block);
    kernels::sum_squares(unit.layout().type, unit.gradient_share(), count, blocks.data());
    sum.add(blocks);
  }
  const auto words = sum.words();
  GYRE_TRY(checked(gyreAllReduce(words.data(), words.data(), words.size(), gyreInt64, gyreSum,
                                 reductions_.comm.get(), nullptr),
                   reductions_.comm.get()));
  return sum;
}

Status Shards::update(const gyreGradStep_t& step, float factor) {
  ++steps_done_;
  for (LiveUnit& unit : units_) {
    GYRE_TRY(options_.optimizer == gyreGradOwn ? update_by_caller(unit, step, factor)
                                               : update_unit(unit, step, factor));
  }
  return spread_parameters();
}

Status Shards::update_unit(LiveUnit& unit, const gyreGradStep_t& by, float factor) {
  const bool narrows = unit.layout().type != ElementType::float32;
  const kernels::OptimizerMove move{.gradient_type = unit.layout().type,
                                    .gradient = unit.gradient_share(),
                                    .gradient_factor = factor,
                                    .parameter = unit.master(),
                                    .first = unit.state(0),
                                    .second = unit.state(1),
                                    .copy_type = unit.layout().type,
                                    .copy = narrows ? unit.share() : nullptr,
                                    .count = unit.layout().share_count};
  if (options_.optimizer == gyreGradAdamW)
    kernels::step(kernels::AdamW{.learning_rate = by.learningRate,
                                 .beta1 = by.beta1,
                                 .beta2 = by.beta2,
                                 .epsilon = by.epsilon,
                                 .weight_decay = by.weightDecay,
                                 .step = steps_done_},
                  move);
  else
    kernels::step(kernels::Sgd{.learning_rate = by.learningRate,
                               .momentum = options_.has_momentum ? by.momentum : 0,
                               .dampening = by.dampening,
                               .weight_decay = by.weightDecay,
                               .nesterov = by.nesterov != 0,
                               .step = steps_done_},
                  move);
  return {};
}

Status Shards::update_by_caller(LiveUnit& unit, const gyreGradStep_t& step, float factor) {
  for (const ShardPiece& piece : unit.pieces()) {
    const gyreGradUpdate_t shown{
        .piece = show(unit, piece),
        .gradient = unit.gradient_share() + piece.offset * element_bytes(unit.layout().type),
        .datatype = static_cast<gyreDataType_t>(unit.layout().type),
        .factor = factor};
    GYRE_TRY(checked(entrance_.call_out([&] {
               return step.update(step.user, &shown);
             })).while_doing("in step->update"));
  }
  unit.narrow_master();
  return {};
}

// The first units first, since they are needed first.
Status Shards::spread_parameters() {
  if (options_.stage == 3) return {};
  for (LiveUnit& unit : units_) GYRE_TRY(begin_gather(unit));
  return {};
}

gyreGradPiece_t Shards::show(const LiveUnit& unit, const ShardPiece& piece) const {
  const auto at = [&](float* base) { return base == nullptr ? nullptr : base + piece.offset; };
  return {.tensor = piece.tensor,
          .first = piece.first,
          .count = piece.count,
          .parameter = at(unit.master()),
          .state1 = at(unit.state(0)),
          .state2 = at(unit.state(1))};
}

void Shards::begin_step() {
  recycle_gradients(true);
  is_ready_.assign(tensors_.size(), 0);
  for (LiveUnit& unit : units_) {
    unit.waiting = unit.layout().slots.size();
    unit.is_cleared = false;
    unit.reducing.reset();
    if (options_.stage > 1 && unit.has_gradients()) unit.give_gradients_back(gradient_pool_);
  }
  reduced_ = 0;
  gather_trace_ = 0;
  if (!gathered_.empty()) gather_order_ = std::exchange(gathered_, {});
  gathers_.completions.forget_times();
  reductions_.completions.forget_times();
}

// What failed here alone, nobody else knows of: they must not wait for this rank's next consensus.
Status Shards::give_up(Status why) {
  if (is_local(why) && control_.has_value()) gyreCommAbort(control_.release());
  abort_channels();
  gathers_.stream.reset();
  reductions_.stream.reset();
  broken_ = why;
  return why;
}

// The ranks of the group may all have got it, and no rank of the others. Ranks that gather nothing
// more do not look there either: they go on to the consensus, and would wait there until their
// deadline. A death is told of by itself, with the right rank to blame: so that comes first.
Status Shards::give_up_alone(Status why) {
  constexpr std::int64_t death_is_told_ns = 200 * ns_per_ms;
  const std::int64_t end_ns = SystemClock::read() + death_is_told_ns;
  const auto is_told = [&] {
    gyreResult_t result = gyreSuccess;
    return gyreCommGetAsyncError(control_.get(), &result) != gyreSuccess || result != gyreSuccess;
  };
  bool told = is_local(why) || is_told();  // give_up tells of its own
  while (!told && SystemClock::read() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    told = is_told();
  }
  if (!told) gyreCommAbort(control_.release());
  return give_up(std::move(why));
}

Result<std::vector<gyreGradPiece_t>> Shards::pieces() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  // Nobody reads them any more.
  if (Status done = finish_gathers(); !done.ok()) return give_up_alone(std::move(done));
  std::vector<gyreGradPiece_t> all;
  for (const LiveUnit& unit : units_)
    for (const ShardPiece& piece : unit.pieces()) all.push_back(show(unit, piece));
  std::stable_sort(all.begin(), all.end(), [](const gyreGradPiece_t& a, const gyreGradPiece_t& b) {
    return a.tensor < b.tensor;
  });
  return all;
}

Status Shards::imported(std::uint64_t step) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  const ComparedNumber settings[] = {{"step", static_cast<std::int64_t>(step)}};
  GYRE_TRY(agree(control_.get(), settings));
  if (Status done = release_all(); !done.ok()) return give_up_alone(std::move(done));
  steps_done_ = step;
  for (LiveUnit& unit : units_) unit.narrow_master();
  if (Status done = spread_parameters(); !done.ok()) return give_up_alone(std::move(done));
  return {};
}

}  // namespace gyre::gradsync
