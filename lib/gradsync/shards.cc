#include "lib/gradsync/shards.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::gradsync {
namespace {

std::uint64_t largest_unit(std::span<const UnitLayout> layouts) {
  std::uint64_t bytes = 0;
  for (const UnitLayout& layout : layouts) bytes = std::max(bytes, layout.bytes());
  return bytes;
}

gyreDataType_t type_of(const LiveUnit& unit) {
  return static_cast<gyreDataType_t>(unit.layout().type);
}

int states_of(const ShardOptions& options) {
  if (options.optimizer == gyreGradAdamW) return 2;
  return options.optimizer == gyreGradSgd && options.has_momentum ? 1 : 0;
}

}  // namespace

Result<std::unique_ptr<Shards>> Shards::create(gyreComm_t comm, std::vector<Tensor> tensors,
                                               const ShardOptions& options) {
  ShardOptions known = options;
  const int ranks = size_of(comm);
  if (known.factor == 0) known.factor = ranks;
  if (known.factor < 1 || known.factor > ranks || ranks % known.factor != 0)
    return invalid_argument(
        fmt::format("config.factor = {} does not divide the {} ranks", known.factor, ranks));
  GYRE_ASSIGN(auto layouts, lay_out_units(tensors, static_cast<std::uint64_t>(known.factor)));
  std::unique_ptr<Shards> made(new Shards(std::move(tensors), known, std::move(layouts)));
  GYRE_TRY(made->open(comm));
  return made;
}

Shards::Shards(std::vector<Tensor> tensors, const ShardOptions& options,
               std::vector<UnitLayout> layouts)
    : tensors_(std::move(tensors)),
      options_(options),
      layouts_(std::move(layouts)),
      parameter_pool_(largest_unit(layouts_)),
      gradient_pool_(largest_unit(layouts_)) {}

// A step that has begun and not ended is given up, so that no peer waits for it; parameters that a
// step has begun to gather are waited for, since peers want this rank's share.
Shards::~Shards() {
  const auto is_busy = [](const CommStream& channel) {
    // An error tells nothing of what is queued behind it.
    return channel.stream.has_value() && gyreStreamQuery(channel.stream.get()) != gyreSuccess;
  };
  if (is_busy(reductions_) || (options_.stage == 3 && is_busy(gathers_))) abort_channels();
  gathers_.stream.reset();  // before the memory that they work on
  reductions_.stream.reset();
}

void Shards::abort_channels() {
  for (OwnedCommunicator* comm : {&gathers_.comm, &reductions_.comm, &replicas_})
    if (comm->has_value()) gyreCommAbort(comm->release());
}

Status Shards::open(gyreComm_t comm) {
  GYRE_ASSIGN(control_, split_off(comm, 0, "shards-control", options_.timeout_ms));
  GYRE_TRY(agree_with_peers());
  GYRE_TRY(open_channels(comm));
  const auto share = static_cast<std::uint64_t>(rank_of(control_.get())) %
                     static_cast<std::uint64_t>(options_.factor);
  for (const UnitLayout& layout : layouts_) {
    GYRE_ASSIGN(
        LiveUnit unit,
        LiveUnit::make(layout, share, {.stage = options_.stage, .states = states_of(options_)}));
    units_.push_back(std::move(unit));
  }
  begin_step();
  return initialize().while_doing("spreading rank 0's parameters");
}

Status Shards::agree_with_peers() {
  const ComparedNumber settings[] = {
      {"config.stage", options_.stage},         {"config.factor", options_.factor},
      {"config.optimizer", options_.optimizer}, {"config.momentum", options_.has_momentum},
      {"config.prefetch", options_.prefetch},
  };
  return agree(control_.get(), settings, tensors_).while_doing("comparing what the ranks gave");
}

// Groups are of consecutive ranks, which launchers put side by side.
Status Shards::open_channels(gyreComm_t comm) {
  const int group = rank_of(comm) / options_.factor, share = rank_of(comm) % options_.factor;
  GYRE_ASSIGN(gathers_.comm, split_off(comm, group, "shards-gather", options_.timeout_ms));
  GYRE_ASSIGN(reductions_.comm, split_off(comm, group, "shards-reduce", options_.timeout_ms));
  if (options_.factor < size_of(comm)) {
    GYRE_ASSIGN(replicas_, split_off(comm, share, "shards-replicas", options_.timeout_ms));
  }
  GYRE_ASSIGN(gathers_.stream, make_stream());
  GYRE_ASSIGN(reductions_.stream, make_stream());
  return {};
}

// Unit by unit, so that no rank holds more than one whole.
Status Shards::initialize() {
  for (LiveUnit& unit : units_) {
    if (!unit.is_whole()) GYRE_TRY(unit.take_whole(parameter_pool_));
    GYRE_TRY(initialize_unit(unit));
    unit.adopt_whole();
    if (options_.stage == 3) unit.give_whole_back(parameter_pool_);
  }
  return {};
}

Status Shards::initialize_unit(LiveUnit& unit) {
  std::memset(unit.whole(), 0, unit.layout().bytes());
  std::int64_t failed = -1;  // the tensor at which rank 0's function did
  if (rank_of(control_.get()) == 0 && options_.initialize != nullptr)
    for (const UnitLayout::TensorSlot& slot : unit.layout().slots)
      if (failed < 0 && options_.initialize(options_.user, slot.tensor,
                                            unit.place(unit.whole(), slot.tensor)) != 0)
        failed = static_cast<std::int64_t>(slot.tensor);
  GYRE_TRY(checked(gyreBcast(&failed, 1, gyreInt64, 0, control_.get(), nullptr), control_.get()));
  if (failed >= 0)
    return Status(Code::RemoteError,
                  fmt::format("config.initialize failed on rank 0 at {}",
                              call_by_name(tensors_, static_cast<std::size_t>(failed))))
        .blame({0});
  return checked(
      gyreBcast(unit.whole(), unit.layout().count(), type_of(unit), 0, control_.get(), nullptr),
      control_.get());
}

Status Shards::usable() const { return Status(broken_).while_doing("an earlier call failed"); }

Status Shards::known_unit(std::size_t unit) const {
  if (unit < units_.size()) return {};
  return invalid_argument(fmt::format("unit {} is not from 0 to {}", unit, units_.size() - 1));
}

gyreResult_t Shards::wait_for(CommStream& channel, std::uint64_t number) {
  const std::int64_t began_ns = SystemClock::read();
  const gyreResult_t result = channel.completions.wait(number);
  exposed_ns_ += SystemClock::read() - began_ns;
  return result;
}

// Of so many bytes that are cut into a share for each rank, each rank sends all but its own.
void Shards::count_moved(std::uint64_t bytes, std::uint64_t ranks) {
  moved_bytes_ += bytes / ranks * (ranks - 1);
}

// ------------------------------------------------------------------------------------- parameters

Status Shards::gather(std::size_t index) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(known_unit(index));
  if (Status done = gather_unit(index); !done.ok())
    return give_up_alone(std::move(done).while_doing(fmt::format("gathering unit {}", index)));
  return {};
}

Status Shards::gather_unit(std::size_t index) {
  LiveUnit& unit = units_[index];
  if (options_.stage == 3) {
    if (!unit.is_whole()) GYRE_TRY(begin_gather(unit));
    GYRE_TRY(prefetch_after(index));
  }
  return finish_gather(unit);
}

Status Shards::begin_gather(LiveUnit& unit) {
  if (!unit.is_whole()) GYRE_TRY(unit.take_whole(parameter_pool_));
  // FNV's multiplier: another order gives another number.
  gather_trace_ =
      gather_trace_ * 0x100000001b3 + static_cast<std::uint64_t>(&unit - &units_[0]) + 1;
  GYRE_TRY(checked(gyreAllGather(unit.share(), unit.whole(), unit.layout().share_count,
                                 type_of(unit), gathers_.comm.get(), gathers_.stream.get()),
                   gathers_.comm.get()));
  count_moved(unit.layout().bytes(), unit.layout().shares);
  GYRE_ASSIGN(unit.gathering, gathers_.completions.mark(gathers_.stream.get()));
  return {};
}

Status Shards::finish_gather(LiveUnit& unit) {
  if (!unit.gathering) return {};
  const gyreResult_t result = wait_for(gathers_, *unit.gathering);
  unit.gathering.reset();
  if (result == gyreSuccess) return {};
  return checked(gyreStreamSynchronize(gathers_.stream.get()), gathers_.comm.get());
}

Status Shards::finish_gathers() {
  for (LiveUnit& unit : units_) GYRE_TRY(finish_gather(unit));
  return {};
}

// The units that came next in the last step, as long as this one goes as that did. The order is
// that of all ranks, so theirs go out in one order too.
Status Shards::prefetch_after(std::size_t index) {
  gathered_.push_back(index);
  const std::size_t place = gathered_.size();
  const bool is_as_before = place <= gather_order_.size() &&
                            std::equal(gathered_.begin(), gathered_.end(), gather_order_.begin());
  if (!is_as_before) return {};
  const std::size_t end =
      std::min(gather_order_.size(), place + static_cast<std::size_t>(options_.prefetch));
  for (std::size_t next = place; next < end; ++next)
    if (LiveUnit& unit = units_[gather_order_[next]]; !unit.is_whole())
      GYRE_TRY(begin_gather(unit));
  return {};
}

Status Shards::release(std::size_t index) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(known_unit(index));
  LiveUnit& unit = units_[index];
  if (options_.stage < 3 || !unit.is_whole()) return {};
  if (Status done = finish_gather(unit); !done.ok()) return give_up_alone(std::move(done));
  unit.give_whole_back(parameter_pool_);
  return {};
}

Result<void*> Shards::parameter(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  const LiveUnit& unit = units_[tensors_[tensor].unit];
  if (!unit.is_whole() || unit.gathering)
    return invalid_usage(
        fmt::format("unit {} of {} is not gathered: call gyreGradShardsGather first",
                    tensors_[tensor].unit, call_by_name(tensors_, tensor)));
  return static_cast<void*>(unit.place(unit.whole(), tensor));
}

// -------------------------------------------------------------------------------------- gradients

Result<void*> Shards::gradient(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  if (is_ready_[tensor] != 0)
    return invalid_usage(
        fmt::format("the gradient of {} is ready already", call_by_name(tensors_, tensor)));
  LiveUnit& unit = units_[tensors_[tensor].unit];
  GYRE_TRY(open_gradients(unit));
  return static_cast<void*>(unit.place(unit.gradients(), tensor));
}

Status Shards::open_gradients(LiveUnit& unit) {
  if (unit.is_cleared) return {};
  if (!unit.has_gradients()) {
    recycle_gradients(true);
    GYRE_TRY(unit.take_gradients(gradient_pool_));
  }
  unit.clear_gradients();
  return {};
}

// Gives back what has been reduced. `waits`: until at most one is left that has not.
void Shards::recycle_gradients(bool waits) {
  if (options_.stage < 2) return;
  std::vector<LiveUnit*> held;  // in the order in which they are done
  for (std::size_t i = 0; i < reduced_; ++i)
    if (LiveUnit& unit = units_[units_.size() - 1 - i]; unit.has_gradients()) held.push_back(&unit);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const std::uint64_t number = *held[i]->reducing;
    if (!reductions_.completions.is_done(number) && (!waits || held.size() - i < 2)) return;
    (void)wait_for(reductions_, number);  // its error is the step's
    held[i]->give_gradients_back(gradient_pool_);
  }
}

Status Shards::ready(std::size_t tensor) {
  GYRE_ASSIGN(const auto lock, entrance_.enter());
  GYRE_TRY(usable());
  GYRE_TRY(check_index(tensors_, tensor));
  if (!units_[tensors_[tensor].unit].is_cleared)
    return invalid_usage(
        fmt::format("the gradient of {} was never asked for: call "
                    "gyreGradShardsGradient, and write to what it gives",
                    call_by_name(tensors_, tensor)));
  if (is_ready_[tensor] != 0)
    return invalid_usage(
        fmt::format("{} is ready a second time in this step", call_by_name(tensors_, tensor)));
  return deliver(tensor);
}

Status Shards::deliver(std::size_t tensor) {
  is_ready_[tensor] = 1;
  --units_[tensors_[tensor].unit].waiting;
  if (failure_.ok()) failure_ = begin_reductions();
  return {};
}

// In the same order on all ranks: from the last unit to the first.
Status Shards::begin_reductions() {
  for (; reduced_ < units_.size(); ++reduced_) {
    LiveUnit& unit = units_[units_.size() - 1 - reduced_];
    if (unit.waiting != 0) return {};
    GYRE_TRY(begin_reduction(unit));
  }
  return {};
}

Status Shards::begin_reduction(LiveUnit& unit) {
  const gyreStream_t stream = reductions_.stream.get();
  const std::uint64_t count = unit.layout().share_count;
  GYRE_TRY(checked(gyreReduceScatter(unit.gradients(), unit.gradient_share(), count, type_of(unit),
                                     gyreAvg, reductions_.comm.get(), stream),
                   reductions_.comm.get()));
  count_moved(unit.layout().bytes(), unit.layout().shares);
  if (replicas_.has_value()) {
    count_moved(2 * unit.layout().share_bytes(),
                static_cast<std::uint64_t>(size_of(replicas_.get())));
    GYRE_TRY(checked(gyreAllReduce(unit.gradient_share(), unit.gradient_share(), count,
                                   type_of(unit), gyreAvg, replicas_.get(), stream),
                     replicas_.get()));
  }
  GYRE_ASSIGN(unit.reducing, reductions_.completions.mark(stream));
  return {};
}

}  // namespace gyre::gradsync
