#include "lib/gradsync/stale_replica.h"

#include "lib/base/caught.h"
#include "lib/base/clock.h"
#include "lib/base/settings.h"
#include "lib/base/thread_start.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace gyre::gradsync {
namespace {

constexpr std::int64_t ns_per_ms = 1'000'000;

Result<std::int64_t> deadline_ns(int timeout_ms) {
  GYRE_ASSIGN(const Settings settings, read_settings(nullptr));
  if (timeout_ms != GYRE_CONFIG_UNDEF_INT && !settings.says("GYRE_TIMEOUT"))
    return timeout_ms * ns_per_ms;
  return settings.timeout_s * 1000 * ns_per_ms;
}

}  // namespace

StaleReplica::StaleReplica(std::vector<Tensor> tensors, const StaleOptions& options)
    : tensors_(std::move(tensors)), options_(options) {}

Result<std::unique_ptr<StaleReplica>> StaleReplica::create(gyreComm_t comm,
                                                           std::vector<Tensor> tensors,
                                                           const StaleOptions& options) {
  std::unique_ptr<StaleReplica> made(new StaleReplica(std::move(tensors), options));
  GYRE_TRY(made->open(comm));
  return made;
}

Status StaleReplica::open(gyreComm_t comm) {
  GYRE_ASSIGN(control_, split_off(comm, 0, "gradsync-turns", options_.timeout_ms));
  const ComparedNumber settings[] = {
      {"config.staleness", static_cast<std::int64_t>(options_.bound)},
  };
  GYRE_TRY(agree(control_.get(), settings, tensors_).while_doing("comparing what the ranks gave"));
  GYRE_ASSIGN(data_, split_off(comm, 0, "gradsync-rounds", options_.timeout_ms));
  GYRE_ASSIGN(timeout_ns_, deadline_ns(options_.timeout_ms));
  // As many outcomes as can wait for a rank that computes, its own, and the next that it gives.
  for (std::uint64_t i = 0; i < options_.bound + 2; ++i) {
    GYRE_ASSIGN(ModelGradients gradients, ModelGradients::make(tensors_));
    free_.push_back(std::make_unique<ModelGradients>(std::move(gradients)));
  }
  GYRE_TRY(broadcast(control_.get(), tensors_, 0).while_doing("broadcasting the parameters"));
  rank_ = static_cast<std::size_t>(rank_of(control_.get()));
  pace_ = Pace(static_cast<std::size_t>(size_of(control_.get())));
  step_ended_ns_ = SystemClock::read();
  return start_thread(thread_, "gyre-rounds", [this] { run(); });
}

// The others learn of it in their next turn. A peer that does not answer is not waited for.
StaleReplica::~StaleReplica() {
  if (!thread_.joinable()) return;
  constexpr std::chrono::seconds patience(2);
  std::unique_lock lock(mutex_);
  state_ = StaleState::leaving;
  changed_.notify_all();
  const bool is_over = changed_.wait_for(lock, patience, [this] { return is_over_; });
  lock.unlock();
  if (!is_over) {
    (void)gyreCommAbort(control_.get());
    (void)gyreCommAbort(data_.get());
  }
  thread_.join();
  if (is_over) return;
  (void)control_.release();
  (void)data_.release();
}

// ------------------------------------------------------------------------------- callers' threads

Status StaleReplica::step(const Apply& apply) {
  GYRE_ASSIGN(const auto entered, entrance_.enter());
  std::unique_lock lock(mutex_);
  if (state_ == StaleState::ended)
    return invalid_usage("gyreGradStaleEnd was called: this rank has no more steps");
  const std::int64_t began_ns = SystemClock::read();
  compute_ns_ = began_ns - step_ended_ns_;
  stats_.compute_ns += compute_ns_;
  changed_.wait(lock, [this] { return !free_.empty() || !broken_.ok(); });
  if (!broken_.ok()) return Status(broken_);
  std::unique_ptr<ModelGradients> mine = std::move(free_.back());
  free_.pop_back();
  lock.unlock();
  mine->take(tensors_);
  lock.lock();
  staged_ = std::move(mine);
  state_ = StaleState::ready;
  ready_ns_ = SystemClock::read();
  changed_.notify_all();
  lock.unlock();
  GYRE_TRY(apply_until(apply, [this] { return state_ == StaleState::computing; }));
  lock.lock();
  base_ = applied_;
  step_ended_ns_ = SystemClock::read();
  stats_.exposed_ns += step_ended_ns_ - began_ns;
  return {};
}

Status StaleReplica::end(const Apply& apply) {
  GYRE_ASSIGN(const auto entered, entrance_.enter());
  {
    const std::lock_guard lock(mutex_);
    if (state_ == StaleState::leaving) return broken_;  // an update failed here
    state_ = StaleState::ended;
    changed_.notify_all();
  }
  return apply_until(apply, [this] { return is_over_ && broken_.ok(); });
}

// What the rounds give, in their order, until nothing more comes.
Status StaleReplica::apply_until(const Apply& apply, const std::function<bool()>& is_over) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !outcomes_.empty() || !broken_.ok() || is_over(); });
    // What has been before it broke counts, here as on the others.
    if (outcomes_.empty()) return is_over() ? Status() : Status(broken_);
    Outcome outcome = std::move(outcomes_.front());
    outcomes_.pop_front();
    lock.unlock();
    const Status done = apply_one(apply, std::move(outcome));
    lock.lock();
    if (done.ok()) continue;
    // This rank's parameters are no longer the others'.
    broken_ = done;
    state_ = StaleState::leaving;
    changed_.notify_all();
    return done;
  }
}

Status StaleReplica::apply_one(const Apply& apply, Outcome outcome) {
  outcome.gradients->give(tensors_);
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(outcome.gradients));
    changed_.notify_all();
  }
  GYRE_TRY(entrance_.call_out([&] { return apply(outcome.round); }));
  const std::lock_guard lock(mutex_);
  ++applied_;
  return {};
}

Result<StaleStats> StaleReplica::stats() {
  GYRE_ASSIGN(const auto entered, entrance_.enter());
  const std::lock_guard lock(mutex_);
  StaleStats stats = stats_;
  stats.slowest = pace_.slowest();
  return stats;
}

// ----------------------------------------------------------------------------- the thread's turns

void StaleReplica::run() {
  Status ended = caught([this] { return turn_by_turn(); });
  // What failed here alone, nobody else knows of: they must not wait for this rank's next turn.
  if (!ended.ok() && is_local(ended)) {
    (void)gyreCommAbort(control_.get());
    (void)gyreCommAbort(data_.get());
  }
  const std::lock_guard lock(mutex_);
  if (broken_.ok()) broken_ = std::move(ended);
  is_over_ = true;
  changed_.notify_all();
}

Status StaleReplica::turn_by_turn() {
  std::vector<StaleEntry> table;
  while (true) {
    const StaleEntry mine = entry();
    GYRE_TRY(all_gather<StaleEntry>(control_.get(), {&mine, 1}, table)
                 .while_doing("telling the other ranks this rank's progress"));
    const StaleTurn turn = decide(table, stats_.rounds, options_.bound);
    switch (turn.kind) {
      case StaleTurn::Kind::ended:
        return {};
      case StaleTurn::Kind::broken:
        return why(table);
      case StaleTurn::Kind::round:
        GYRE_TRY(run_round(table));
        break;
      case StaleTurn::Kind::wait:
        sleep_for_a_turn(std::any_of(table.begin(), table.end(), [](const StaleEntry& one) {
          return one.state == StaleState::ready;
        }));
    }
  }
}

StaleEntry StaleReplica::entry() {
  const std::lock_guard lock(mutex_);
  StaleEntry mine{.base = base_, .compute_ns = compute_ns_, .state = state_};
  if (state_ != StaleState::ready) return mine;
  const std::int64_t waited_ns = SystemClock::read() - ready_ns_;
  mine.is_impatient = waited_ns >= options_.patience_ns.value_or(compute_ns_ / 4);
  if (waited_ns >= timeout_ns_) mine.failure = gyreTimeout;
  return mine;
}

// Nobody is woken for a turn: ranks tell each other how far they are this often, and more often
// while one waits. An exchange costs microseconds.
void StaleReplica::sleep_for_a_turn(bool somebody_waits) {
  const std::chrono::microseconds turn(somebody_waits ? 100 : 500);
  std::unique_lock lock(mutex_);
  const StaleState before = state_;
  changed_.wait_for(lock, turn, [&] { return state_ != before; });
}

// This rank's gradients if they are ready, else zeros.
std::unique_ptr<ModelGradients> StaleReplica::begin_round(gyreGradRound_t& round) {
  std::unique_lock lock(mutex_);
  round.round = stats_.rounds;
  // As it told the others: what has become ready since then is for the next round.
  if (round.own != 0) {
    round.staleness = stats_.rounds - base_;
    ++stats_.own_rounds;
    stats_.max_staleness = std::max(stats_.max_staleness, round.staleness);
    return std::move(staged_);
  }
  changed_.wait(lock, [this] { return !free_.empty() || state_ == StaleState::leaving; });
  if (free_.empty()) return nullptr;
  std::unique_ptr<ModelGradients> zeros = std::move(free_.back());
  free_.pop_back();
  lock.unlock();
  zeros->clear(tensors_);
  return zeros;
}

Status StaleReplica::run_round(std::span<const StaleEntry> table) {
  gyreGradRound_t round{};
  for (const StaleEntry& one : table) round.contributors += one.state == StaleState::ready;
  round.own = table[rank_].state == StaleState::ready;
  std::unique_ptr<ModelGradients> gradients = begin_round(round);
  if (gradients == nullptr)
    return invalid_usage("the replica was destroyed before all rounds were applied");
  for (const LiveBucket& bucket : gradients->buckets())
    GYRE_TRY(checked(gyreAllReduce(bucket.data(), bucket.data(), bucket.plan().count,
                                   static_cast<gyreDataType_t>(bucket.wire_type()), gyreAvg,
                                   data_.get(), nullptr),
                     data_.get())
                 .while_doing(fmt::format("reducing round {}", round.round)));
  const std::lock_guard lock(mutex_);
  outcomes_.push_back({std::move(gradients), round});
  ++stats_.rounds;
  if (round.own != 0 && state_ == StaleState::ready) state_ = StaleState::computing;
  for (std::size_t other = 0; other < table.size(); ++other)
    if (table[other].state == StaleState::ready) pace_.add(other, table[other].compute_ns);
  changed_.notify_all();
  return {};
}

Status StaleReplica::why(std::span<const StaleEntry> table) const {
  std::vector<int> computing;
  std::string names;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (table[rank].state == StaleState::leaving)
      return Status(Code::RemoteError,
                    fmt::format("rank {} has ended its replica, or its update failed; with "
                                "gyreGradStaleEnd on every rank the others go on without it",
                                rank))
          .blame({static_cast<int>(rank)});
    if (table[rank].state != StaleState::computing) continue;
    computing.push_back(static_cast<int>(rank));
    names +=
        fmt::format("{}{} (since round {})", names.empty() ? "" : ", ", rank, table[rank].base);
  }
  return Status(Code::Timeout,
                fmt::format("round {} waits for rank {}: without its gradient the bound of {} "
                            "would be exceeded, and it has given none within {} ms",
                            stats_.rounds, names, options_.bound, timeout_ns_ / ns_per_ms))
      .blame(std::move(computing));
}

}  // namespace gyre::gradsync
