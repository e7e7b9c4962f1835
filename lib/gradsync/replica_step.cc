// The end of a replica's step. Missing gradients are filled in, the ranks exchange how the step
// went, and the reduced gradients are copied back.
#include "lib/base/clock.h"
#include "lib/gradsync/replica.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::gradsync {

Status Replica::wait() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  if (!syncs_) return {};
  const std::int64_t began_ns = SystemClock::read();
  const std::int64_t compute_ns = end_compute();
  ++steps_done_;
  ConsensusEntry mine = deliver_the_rest();
  mine.compute_ns = compute_ns;
  auto call = StepConsensus::hold(control_.get(), mine);
  if (!call.ok())
    return give_up(failure_.ok() ? std::move(call).status().while_doing(waiting_for())
                                 : std::move(failure_));
  Status done = settle(*call);
  step_ended_ns_ = SystemClock::read();
  stats_.exposed_ns += step_ended_ns_ - began_ns;
  return done;
}

// How long this rank has computed since the ranks last met; 0: they have not.
std::int64_t Replica::end_compute() {
  const std::int64_t took_ns = step_ended_ns_ != 0 ? SystemClock::read() - step_ended_ns_ : 0;
  stats_.compute_ns += took_ns;
  return took_ns;
}

void Replica::take_pace(const StepConsensus& call) {
  for (int rank = 0; rank < call.size(); ++rank)
    if (const std::int64_t took_ns = call.of(rank).compute_ns; took_ns > 0)
      pace_.add(static_cast<std::size_t>(rank), took_ns);
}

// Zeros for what was never ready, so that no rank waits for it; and what the others have to know.
ConsensusEntry Replica::deliver_the_rest() {
  ConsensusEntry entry{.steps_done = steps_done_, .trace = hook_.begin != nullptr};
  for (std::size_t tensor = tensors_.size(); tensor-- > 0;) {
    if (deliveries_[tensor] != GradientState::none) continue;
    if (!options_.finds_unused) entry.missing = static_cast<std::int64_t>(tensor);
    // What it could not begin is in failure_.
    if (Status done = deliver(tensor, GradientState::unused); !done.ok())
      failure_ = std::move(done);
  }
  entry.failure = static_cast<std::int32_t>(failure_.code());
  return entry;
}

// The same on all ranks, with data or without, as the consensus decides.
Status Replica::settle(const StepConsensus& call) {
  Status said = verdict(call);
  if (call.first_failed() >= 0) return give_up(std::move(said));
  const bool is_whole = call.first_missing() < 0;
  if (is_whole && options_.finds_unused)
    if (Status gathered = gather_used(); !gathered.ok()) return give_up(std::move(gathered));
  const int active = call.active();
  const bool rescales = options_.divides_by_active && active > 0;
  const float factor = rescales ? static_cast<float>(call.size()) / static_cast<float>(active) : 1;
  if (Status done = confirm(call, finish_buckets(factor)); !done.ok())
    return give_up(std::move(done));
  ++stats_.steps;
  take_pace(call);
  begin_step();
  if (!is_whole) observed_.clear();
  if (is_whole && !is_laid_out_)
    if (Status laid_out = lay_out_as_observed(); !laid_out.ok())
      return give_up(std::move(laid_out));
  return said;
}

Status Replica::verdict(const StepConsensus& call) const {
  if (!failure_.ok()) return failure_;
  if (const int rank = call.first_failed(); rank >= 0)
    return Status(Code::RemoteError,
                  fmt::format("rank {} could not reduce its buckets: {}; its own error says more",
                              rank,
                              gyreGetErrorString(static_cast<gyreResult_t>(call.of(rank).failure))))
        .blame({rank});
  if (const int rank = call.first_missing(); rank >= 0)
    return Status(Code::Mismatch,
                  fmt::format(
                      "rank {} never delivered the gradient of {} in step {} (if it has "
                      "none there, set config.findUnused, or call gyreGradUnused)",
                      rank, call_by_name(tensors_, static_cast<std::size_t>(call.of(rank).missing)),
                      stats_.steps + 1))
        .blame({rank});
  return {};
}

// A hook may reduce over several communicators. If one of them failed, ranks that are not in it may
// have got a wrong result without an error.
Status Replica::confirm(const StepConsensus& call, Status mine) const {
  if (!call.any_trace()) return mine;
  const auto again =
      StepConsensus::hold(control_.get(), {.failure = static_cast<std::int32_t>(mine.code())});
  if (!mine.ok()) return mine;
  return again.ok() ? verdict(*again) : again.status();
}

Status Replica::gather_used() {
  for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor)
    used_[tensor] = deliveries_[tensor] == GradientState::ready;
  return checked(gyreAllReduce(used_.data(), used_.data(), used_.size(), gyreUint8, gyreMax,
                               control_.get(), nullptr),
                 control_.get());
}

Status Replica::finish_buckets(float factor) {
  for (std::size_t index = 0; index < buckets_.size(); ++index)
    GYRE_TRY(finish_bucket(index, factor).while_doing(fmt::format("bucket {}", index)));
  return {};
}

Status Replica::finish_bucket(std::size_t index, float factor) {
  const BucketProgress& progress = buckets_[index];
  if (completions_.wait(progress.ending) != gyreSuccess)
    return checked(gyreStreamSynchronize(stream_.get())).while_doing(waiting_for());
  const std::int64_t ended_ns = completions_.ended_ns(progress.ending);
  const std::int64_t before_ns = index == 0 ? 0 : completions_.ended_ns(buckets_[index - 1].ending);
  stats_.communication_ns += ended_ns - std::max(progress.begun_ns, before_ns);
  if (hook_.finish != nullptr) {
    std::vector<std::size_t> tensors;
    const gyreGradBucket_t shown = show(index, tensors);
    GYRE_TRY(checked(entrance_.call_out([&] {
               return hook_.finish(hook_.user, &shown);
             })).while_doing("in the hook"));
  }
  const bool has_result =
      options_.server == GYRE_GRAD_NO_SERVER || options_.server == rank_of(control_.get());
  if (!has_result) return {};
  for (const Slice& slice : progress.bucket.plan().slices) {
    const Tensor& tensor = tensors_[slice.tensor];
    if (used_[slice.tensor] != 0 || tensor.gradient == nullptr)
      progress.bucket.give(slice, tensor, factor);
  }
  return {};
}

// The next one: nothing is delivered.
void Replica::begin_step() {
  std::fill(deliveries_.begin(), deliveries_.end(), GradientState::none);
  for (BucketProgress& progress : buckets_) progress.waiting = progress.bucket.plan().slices.size();
  next_ = 0;
  completions_.forget_times();
}

// The ranks are no longer where they should be: what is under way ends, here and on the others.
// What failed here alone, nobody else knows of: they must not wait for this rank's next consensus.
// What a peer is to blame for, they find out by themselves, and blame the right one.
Status Replica::give_up(Status why) {
  if (is_local(why) && control_.has_value()) gyreCommAbort(control_.release());
  if (data_.has_value()) gyreCommAbort(data_.release());
  stream_.reset();
  next_ = 0;
  broken_ = why;
  return why;
}

// Which gradients a peer that does not come has not delivered: of the first bucket that is not
// done.
std::string Replica::waiting_for() const {
  constexpr std::size_t max_shown = 4;
  std::size_t first = 0;
  while (first < next_ && completions_.is_done(buckets_[first].ending)) ++first;
  if (first >= buckets_.size()) return fmt::format("ending step {}", stats_.steps + 1);
  const std::vector<Slice>& slices = buckets_[first].bucket.plan().slices;
  std::string names;
  for (std::size_t i = 0; i < std::min(max_shown, slices.size()); ++i)
    names += (i == 0 ? "" : ", ") + call_by_name(tensors_, slices[i].tensor);
  if (slices.size() > max_shown) names += fmt::format(" and {} more", slices.size() - max_shown);
  return fmt::format(
      "ending step {}, in which bucket {} is the first that some rank has not "
      "delivered: {}",
      stats_.steps + 1, first, names);
}

Status Replica::join() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  while (true) {
    auto call = StepConsensus::hold(
        control_.get(), {.steps_done = steps_done_, .joined = 1, .trace = hook_.begin != nullptr});
    if (!call.ok())
      return give_up(std::move(call).status().while_doing("waiting for ranks that have data"));
    if (call->active() == 0) return end_join(*call);
    for (std::size_t tensor = tensors_.size(); tensor-- > 0;)
      GYRE_TRY(deliver(tensor, GradientState::unused));
    if (!failure_.ok()) return give_up(std::move(failure_));  // the consensus did not tell of it
    const Status done = settle(*call);
    if (!broken_.ok()) return done;  // a gradient that another rank lacks is not for this one
  }
}

Status Replica::end_join(const StepConsensus& call) {
  if (const int failed = call.first_failed(); failed >= 0) return give_up(verdict(call));
  Status done = broadcast(control_.get(), tensors_, call.longest());
  if (!done.ok()) return give_up(std::move(done));
  steps_done_ = call.of(call.longest()).steps_done;  // whose parameters these are
  return {};
}

}  // namespace gyre::gradsync
