#include "lib/gradsync/replica.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

namespace gyre::gradsync {

Result<std::unique_ptr<Replica>> Replica::create(gyreComm_t comm, std::vector<Tensor> tensors,
                                                 const ReplicaOptions& options) {
  std::unique_ptr<Replica> made(new Replica(std::move(tensors), options));
  GYRE_TRY(made->open(comm));
  return made;
}

Status Replica::open(gyreComm_t comm) {
  GYRE_ASSIGN(control_, split_off(comm, 0, "gradsync-control", options_.timeout_ms));
  GYRE_TRY(agree_with_peers());
  pace_ = Pace(static_cast<std::size_t>(size_of(control_.get())));
  GYRE_ASSIGN(data_, split_off(comm, 0, "gradsync", options_.timeout_ms));
  GYRE_ASSIGN(stream_, make_stream());
  deliveries_.assign(tensors_.size(), GradientState::none);
  used_.assign(tensors_.size(), 1);
  // A backward pass goes from the last tensor to the first.
  std::vector<std::size_t> order(tensors_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  GYRE_TRY(lay_out_by(order));
  is_laid_out_ = !options_.observes_order;
  return broadcast(control_.get(), tensors_, 0).while_doing("broadcasting the parameters");
}

Status Replica::agree_with_peers() {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const ComparedNumber settings[] = {
      {"config.bucketBytes", number(options_.limits.bytes)},
      {"config.firstBucketBytes", number(options_.limits.first_bytes)},
      {"config.op", number(options_.op)},
      {"config.wireType", options_.wire ? number(*options_.wire) : GYRE_GRAD_WIRE_SAME},
      {"config.order", number(options_.observes_order)},
      {"config.findUnused", number(options_.finds_unused)},
      {"config.joinDivisor", number(options_.divides_by_active)},
      {"config.server", number(options_.server)},
  };
  return agree(control_.get(), settings, tensors_).while_doing("comparing what the ranks gave");
}

// A step that has begun and not ended: nobody waits for its buckets any more.
Replica::~Replica() {
  if (next_ > 0 && data_.has_value()) gyreCommAbort(data_.release());
  stream_.reset();  // before the memory that it works on
}

Status Replica::usable() const { return Status(broken_).while_doing("an earlier call failed"); }

Status Replica::idle() const {
  GYRE_TRY(usable());
  const auto is_delivered = [](GradientState one) { return one != GradientState::none; };
  const auto found = std::find_if(deliveries_.begin(), deliveries_.end(), is_delivered);
  if (found == deliveries_.end()) return {};
  return invalid_usage(
      fmt::format("a step has begun: {} is ready; call gyreGradWait first",
                  call_by_name(tensors_, static_cast<std::size_t>(found - deliveries_.begin()))));
}

const LiveBucket& Replica::bucket_of(std::size_t tensor) const {
  return buckets_[places_[tensor].bucket].bucket;
}

const Slice& Replica::slice_of(std::size_t tensor) const {
  return bucket_of(tensor).plan().slices[places_[tensor].slice];
}

Result<void*> Replica::view(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(check_index(tensors_, tensor));
  if (tensors_[tensor].gradient != nullptr)
    return invalid_usage(fmt::format("the gradient of {} lies in the caller's memory",
                                     call_by_name(tensors_, tensor)));
  return static_cast<void*>(bucket_of(tensor).view(slice_of(tensor)));
}

Status Replica::ready(std::size_t tensor, gyreStream_t stream) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  if (!syncs_) return {};
  const bool in_place = tensors_[tensor].gradient == nullptr && !bucket_of(tensor).has_own_wire();
  if (stream != nullptr && !in_place)
    return invalid_usage(
        fmt::format("{} is copied as it becomes ready, and cannot be awaited on a stream: its "
                    "gradient has to lie in its bucket, in its type on the wire",
                    call_by_name(tensors_, tensor)));
  if (stream != nullptr) GYRE_TRY(checked(gyreStreamWait(stream_.get(), stream)));
  return deliver(tensor, GradientState::ready);
}

Status Replica::unused(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  return syncs_ ? deliver(tensor, GradientState::unused) : Status();
}

Status Replica::deliver(std::size_t tensor, GradientState delivery) {
  if (deliveries_[tensor] != GradientState::none)
    return invalid_usage(
        fmt::format("{} is ready a second time in this step", call_by_name(tensors_, tensor)));
  deliveries_[tensor] = delivery;
  if (!is_laid_out_) observed_.push_back(tensor);
  if (delivery == GradientState::ready)
    bucket_of(tensor).take(slice_of(tensor), tensors_[tensor]);
  else
    bucket_of(tensor).clear(slice_of(tensor), tensors_[tensor]);
  --buckets_[places_[tensor].bucket].waiting;
  begin_full_buckets();
  return {};
}

// In the same order on all ranks: none before its predecessor.
void Replica::begin_full_buckets() {
  while (next_ < buckets_.size() && buckets_[next_].waiting == 0 && failure_.ok()) {
    buckets_[next_].begun_ns = SystemClock::read();
    failure_ = begin_bucket(next_).while_doing(fmt::format("beginning bucket {}", next_));
    ++next_;
  }
}

gyreGradBucket_t Replica::show(std::size_t index, std::vector<std::size_t>& tensors) const {
  const LiveBucket& bucket = buckets_[index].bucket;
  for (const Slice& slice : bucket.plan().slices) tensors.push_back(slice.tensor);
  return {.index = index,
          .buckets = buckets_.size(),
          .data = bucket.data(),
          .count = bucket.plan().count,
          .datatype = static_cast<gyreDataType_t>(bucket.wire_type()),
          .tensors = tensors.data(),
          .tensorCount = tensors.size()};
}

Status Replica::begin_bucket(std::size_t index) {
  BucketProgress& progress = buckets_[index];
  const LiveBucket& bucket = progress.bucket;
  stats_.wire_bytes += bucket.wire_bytes();
  if (hook_.begin != nullptr) {
    std::vector<std::size_t> tensors;
    const gyreGradBucket_t shown = show(index, tensors);
    GYRE_TRY(checked(entrance_.call_out([&] {
               return hook_.begin(hook_.user, &shown, data_.get(), stream_.get());
             })).while_doing("in the hook"));
  } else {
    GYRE_TRY(begin_reduction(bucket));
  }
  GYRE_ASSIGN(progress.ending, completions_.mark(stream_.get()));
  return {};
}

Status Replica::begin_reduction(const LiveBucket& bucket) {
  const auto type = static_cast<gyreDataType_t>(bucket.wire_type());
  const std::uint64_t count = bucket.plan().count;
  if (options_.server == GYRE_GRAD_NO_SERVER)
    return checked(gyreAllReduce(bucket.data(), bucket.data(), count, type, options_.op,
                                 data_.get(), stream_.get()),
                   data_.get());
  return checked(gyreReduce(bucket.data(), bucket.data(), count, type, options_.op, options_.server,
                            data_.get(), stream_.get()),
                 data_.get());
}

Status Replica::set_sync(bool sync) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  syncs_ = sync;
  return {};
}

Result<bool> Replica::was_used(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  if (!options_.finds_unused)
    return invalid_usage(
        "the ranks exchange which gradients they used only with config.findUnused = 1");
  return used_[tensor] != 0;
}

Status Replica::broadcast_arrays(std::span<const Tensor> arrays, int root) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  if (root < 0 || root >= size_of(control_.get()))
    return invalid_argument(
        fmt::format("root {} is not from 0 to {}", root, size_of(control_.get()) - 1));
  return broadcast(control_.get(), arrays, root);
}

Status Replica::compare_parameters() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  return compare(control_.get(), tensors_);
}

Status Replica::return_parameters() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  if (options_.server == GYRE_GRAD_NO_SERVER)
    return invalid_usage("config.server names no rank whose parameters are to be returned");
  return broadcast(control_.get(), tensors_, options_.server);
}

Status Replica::average_parameters() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  GYRE_ASSIGN(const StepConsensus call,
              StepConsensus::hold(control_.get(), {.compute_ns = end_compute()}));
  take_pace(call);
  GYRE_TRY(average(control_.get(), tensors_));
  step_ended_ns_ = SystemClock::read();
  return {};
}

Status Replica::set_hook(const gyreGradHook_t* hook) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(idle());
  if (hook != nullptr && hook->begin == nullptr)
    return invalid_argument("hook->begin is NULL: pass NULL for the all-reduce");
  hook_ = hook == nullptr ? gyreGradHook_t{} : *hook;
  return {};
}

Result<ReplicaStats> Replica::stats() {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  ReplicaStats stats = stats_;
  stats.buckets = buckets_.size();
  stats.slowest = pace_.slowest();
  return stats;
}

// ------------------------------------------------------------------------------------- the layout

Status Replica::lay_out_by(std::span<const std::size_t> order) {
  std::vector<Bucket> plans = lay_out(tensors_, order, options_.limits);
  const bool is_as_before = std::equal(
      plans.begin(), plans.end(), buckets_.begin(), buckets_.end(),
      [](const Bucket& plan, const BucketProgress& old) { return plan == old.bucket.plan(); });
  if (is_as_before) return {};
  std::vector<BucketProgress> made;
  std::vector<TensorPlace> places(tensors_.size());
  for (Bucket& plan : plans) {
    GYRE_ASSIGN(LiveBucket bucket, LiveBucket::make(std::move(plan), tensors_, options_.wire));
    for (std::size_t slice = 0; slice < bucket.plan().slices.size(); ++slice) {
      const std::size_t tensor = bucket.plan().slices[slice].tensor;
      places[tensor] = {made.size(), slice};
      if (buckets_.empty() || tensors_[tensor].gradient != nullptr) continue;
      std::memcpy(bucket.view(bucket.plan().slices[slice]),
                  bucket_of(tensor).view(slice_of(tensor)), tensors_[tensor].bytes());
    }
    made.push_back({.bucket = std::move(bucket)});
  }
  buckets_ = std::move(made);
  places_ = std::move(places);
  ++stats_.layout;
  begin_step();
  return {};
}

// Rank 0's order, so that all lay out alike. What it never saw comes last.
Status Replica::lay_out_as_observed() {
  is_laid_out_ = true;
  std::vector<std::uint8_t> is_listed(tensors_.size(), 0);
  std::vector<std::uint64_t> order(observed_.begin(), observed_.end());
  for (const std::size_t tensor : observed_) is_listed[tensor] = 1;
  for (std::size_t tensor = tensors_.size(); tensor-- > 0;)
    if (is_listed[tensor] == 0) order.push_back(tensor);
  observed_ = {};
  GYRE_TRY(checked(gyreBcast(order.data(), order.size(), gyreUint64, 0, control_.get(), nullptr),
                   control_.get()));
  std::fill(is_listed.begin(), is_listed.end(), std::uint8_t{0});
  for (const std::uint64_t tensor : order)
    if (tensor >= tensors_.size() || is_listed[tensor]++ != 0)
      return internal_error("rank 0's order does not list each tensor once");
  return lay_out_by(std::vector<std::size_t>(order.begin(), order.end()));
}

}  // namespace gyre::gradsync
