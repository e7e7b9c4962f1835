// What a communicator does, as Resumables: joining and a collective; exchanging.cc has the rest.
#include "lib/base/log.h"
#include "lib/comm/communicator.h"
#include "lib/comm/process.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/format.h>

#include <utility>

namespace gyre::comm {
namespace {

const SystemClock clock;

}  // namespace

// ------------------------------------------------------------------------------ joining

bool Communicator::Joining::advance() {
  using State = control::Membership::State;
  if (owner_.membership_->state() != State::joining) owner_.ledger_.end_wait(WaitLane::collective);
  switch (owner_.membership_->state()) {
    case State::joining:
      return false;
    case State::joined:
      return settle();
    default:
      finish(owner_.fail(owner_.membership_->failure()));
      return true;
  }
}

// On a device it takes memory, when no kernel of this process is on its way; if one always is, it
// does so all the same, as that one may wait for this thread.
bool Communicator::Joining::has_settled(Status& settled) {
  if (is_settled_) return true;
  if (!owner_.on_device()) {
    settled = owner_.settle();
    return is_settled_ = true;
  }
  loaded::CudaRest& rest = *owner_.options_.device->driver().rest;
  const std::int64_t now_ns = clock.now_ns();
  if (rest_until_ns_ == 0) rest_until_ns_ = now_ns + loaded::CudaRest::patience_ns;
  const loaded::CudaRest::Stillness still = rest.try_rest();
  if (!still.is_held()) rest.ask_for_rest();
  if (!still.is_held() && now_ns < rest_until_ns_) return false;
  if (!still.is_held()) rest.note_vain_wait();
  settled = owner_.settle();
  return is_settled_ = true;
}

// And it is over when all ranks of this process have what they ask the driver for: from the next
// kernel on, which may be of any communicator, that would have to wait.
bool Communicator::Joining::settle() {
  Status settled;
  if (!has_settled(settled)) return false;
  if (settled.ok() && owner_.on_device() && !owner_.device_->links().are_pools_open()) return false;
  finish(settled.ok() ? settled : owner_.fail(std::move(settled)));
  return true;
}

void Communicator::Joining::expire() {
  finish(owner_.fail(Status(Code::Timeout, fmt::format("rank {} of {} could not join in time",
                                                       owner_.rank_, owner_.size_))));
}

bool Communicator::Joining::arm(WaitSet& set) {
  auto& word = owner_.membership_->changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  using State = control::Membership::State;
  const State state = owner_.membership_->state();
  return state == State::joining || (state == State::joined && owner_.on_device());
}

std::int64_t Communicator::Joining::limit_ns() const {
  // The control plane keeps the deadline and knows who is missing; this only bounds its silence.
  return (owner_.options_.settings.init_timeout_s + 5) * ns_per_s;
}

void Communicator::Joining::tell_wait() {
  WaitRecord wait;
  wait.phase = WaitPhase::joining;
  wait.what = BlockedOn::entered;
  owner_.ledger_.tell_wait(WaitLane::collective, wait);
}

// ------------------------------------------------------------------------------ suspicion

// What the answer will be is for the peer's side to say: it ends the communicator on all ranks.
void Communicator::ask(int peer) {
  if (peer != rank_)
    (void)membership_->send(peer, letter_key(LetterKind::call), board_->question());
}

bool Communicator::others_have_left() const {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !membership_->has_left(rank)) return false;
  return true;
}

// Goes on holding it, or ends `operation`. Who has left in peace did not fail: it did not call.
bool Communicator::settle_suspicion(Suspicion& suspicion, const std::string& waiting,
                                    Operating& operation) {
  const std::vector<int>& culprits = suspicion.what().culprits();
  if (suspicion.what().code() == Code::RemoteError && culprits.size() == 1 &&
      membership_->has_left(culprits[0])) {
    Status absent(Code::Mismatch,
                  fmt::format("rank {} has left the communicator (gyreCommDestroy), and rank {} "
                              "waits for it in {}",
                              culprits[0], rank_, waiting));
    operation.end(fail(std::move(absent).blame({culprits[0], rank_})));
    return true;
  }
  if (!suspicion.ripe(clock.now_ns())) return false;
  operation.end(fail(suspicion.take()));
  return true;
}

void Communicator::Operating::suspect_departure(control::Membership& membership, int peer,
                                                bool nothing_under_way) {
  if (standstill_.times() > 1 && nothing_under_way && membership.has_left(peer))
    suspicion_.begin(Status(Code::RemoteError, "it has left").blame({peer}), clock.now_ns());
}

// Whom it waits for lives, and passes on what it got; or has given up, so that there is an end.
// Long for a rank that others keep from a core, and short beside the 100 ms in which a death is
// told.
bool Communicator::Operating::outlives(const Status& failure, int peer) {
  constexpr std::int64_t most_ns = 50 * ns_per_ms;
  if (std::ranges::find(failure.culprits(), peer) != failure.culprits().end()) return false;
  const std::int64_t now_ns = clock.now_ns();
  if (outlives_until_ns_ == 0) outlives_until_ns_ = now_ns + most_ns;
  return now_ns < outlives_until_ns_;
}

// ------------------------------------------------------------------------------ collective

void Communicator::Operation::begin(const Request& request) {
  request_ = &request;
  stage_ = Stage::opening;
  Operating::begin();
  call_ = CallRecord::of(request, ++owner_.sequence_);
  if (logs_trace(Subsystem::coll)) [[unlikely]]
    log_trace(Subsystem::coll, "communicator {}rank {}: number {}: {}", owner_.options_.name,
              owner_.rank_, call_.sequence, call_.text());
  record_.begin(flight_call(request, call_.sequence));
  if (owner_.board_ != nullptr)
    if (auto mismatch = owner_.board_->begin(call_)) return end(owner_.fail(std::move(*mismatch)));
  if (owner_.membership_->failed()) [[unlikely]]
    return end(owner_.fail(owner_.membership_->failure()));
  if (owner_.is_bound(request, call_)) [[likely]]
    return launch();
  owner_.bound_for_ = {};
  Status chosen = owner_.choose(request);
  // What the settings rule out they rule out on all ranks: nothing has happened.
  if (chosen.code() == Code::InvalidUsage || chosen.code() == Code::InvalidArgument)
    return end(std::move(chosen));
  if (chosen.ok() && on_device()) {
    if (owner_.current_->on_device != nullptr)
      chosen = owner_.bind_on_device(request, call_);
    else
      chosen = owner_.device_->links().open(owner_.current_->plan);
    if (!chosen.ok()) return end(owner_.fail(std::move(chosen)));
    if (owner_.current_->on_device != nullptr) launch();
    return;
  }
  if (chosen.ok() && owner_.current_->bound_already) {
    owner_.bind(request, call_);
    return launch();
  }
  if (chosen.ok()) chosen = owner_.links_->open(owner_.current_->plan);
  if (!chosen.ok()) end(owner_.fail(std::move(chosen)));
}

void Communicator::Operation::launch() {
  record_.choose(owner_.choice_);
  if (on_device()) {
    stage_ = Stage::launching;
    launch_on_device();
    return;
  }
  owner_.launch_.begin(owner_.current_->bound, owner_.place(*request_));
  stage_ = Stage::running;
}

// The call is done when it is on its stream. False while it waits for room.
bool Communicator::Operation::launch_on_device() {
  auto launched =
      owner_.device_->launch(*request_, *owner_.current_->on_device, owner_.more_follow_);
  if (!launched.ok()) return end(owner_.fail(std::move(launched).status())), true;
  if (!*launched) return false;
  owner_.note_launch();
  end({});
  return true;
}

bool Communicator::Operation::open_on_device() {
  bool moved = false;
  const auto open = owner_.device_->links().advance(moved);
  if (!open.ok()) return break_down(open.status()), true;
  if (!*open) return moved;
  auto bound = owner_.device_->bind_plan(owner_.current_->plan);
  if (!bound.ok()) return end(owner_.fail(std::move(bound).status())), true;
  owner_.current_->on_device = std::move(bound).value();
  Status ready = owner_.bind_on_device(*request_, call_);
  if (!ready.ok()) return end(owner_.fail(std::move(ready))), true;
  launch();
  return true;
}

bool Communicator::Operation::open() {
  if (on_device()) return open_on_device();
  bool moved = false;
  Status status = owner_.links_->advance(moved);
  if (!status.ok()) return break_down(std::move(status)), true;
  if (!owner_.links_->plan_is_open()) return moved;
  owner_.current_->bound = owner_.links_->bind(owner_.current_->plan);
  owner_.current_->bound_already = true;
  owner_.bind(*request_, call_);
  launch();
  return true;
}

// Of a peer in the middle of one move with a buffer of this call: far longer than a move takes, and
// short enough for an abort.
constexpr std::int64_t recall_most_ns = 500 * ns_per_ms;

void Communicator::Operation::end(Status outcome) {
  if (stage_ == Stage::recalling) return;  // its verdict stands
  if (outcome.ok() || stage_ != Stage::running) return close(std::move(outcome));
  verdict_ = std::move(outcome);
  recall_until_ns_ = clock.now_ns() + recall_most_ns;
  tried_to_withdraw_ = false;
  stage_ = Stage::recalling;
  (void)recall();
}

// The caller may do with its buffers what it likes once this has said yes.
bool Communicator::Operation::recall() {
  using InUse = exec::Launch::InUse;
  const auto [in_use, by] = owner_.launch_.recall();
  if (in_use != InUse::no) {
    if (clock.now_ns() < recall_until_ns_) return false;
    // A thread of this process lives, and comes to the end of its move.
    if (in_use == InUse::shared || !withdraw(by)) return false;
  }
  close(std::move(verdict_));
  return true;
}

// It may be stopped, or its machine paused, and go on at any time.
bool Communicator::Operation::withdraw(int rank) {
  if (std::exchange(tried_to_withdraw_, true)) return false;
  const exec::Call& call = owner_.call_;
  const std::string what =
      fmt::format("rank {} stands still in the middle of writing into {} bytes at {}", rank,
                  call.output_bytes, static_cast<const void*>(call.output));
  const Status done = owner_.regions_.withdraw(call.output);
  if (done.ok())
    log_warn(
        "{}: they are kept from it. Peers do not reach them any more: calls with them are "
        "slower until gyreMemFree gives them back",
        what);
  else
    log_warn("{}, and they cannot be kept from it ({}): the call ends when that rank goes on", what,
             done.message());
  return done.ok();
}

void Communicator::Operation::close(Status outcome) {
  if (owner_.call_.output_place.region != transport::region_staged) {
    owner_.regions_.end_loan(owner_.call_.output);
    owner_.call_.output_place = {};
  }
  finish(std::move(outcome));
}

bool Communicator::Operation::advance() {
  if (stage_ == Stage::recalling) [[unlikely]]
    return recall();
  if (owner_.membership_->failed()) [[unlikely]]
    return go_on_bereft();
  if (suspicion_.held()) return owner_.settle_suspicion(suspicion_, waiting(), *this);
  if (tracing_.is_under_way()) [[unlikely]]
    if (const auto verdict = tracing_.advance(*owner_.membership_, clock.now_ns()))
      return time_out(*verdict), true;
  if (stage_ == Stage::opening) return open();
  if (stage_ == Stage::launching) return launch_on_device();
  switch (owner_.launch_.advance()) {
    case exec::Launch::State::blocked:
      record_.blocked();
      return false;
    case exec::Launch::State::moved:
      record_.moved();
      standstill_.moved();
      return true;
    case exec::Launch::State::done:
      end({});
      return true;
    case exec::Launch::State::failed:
      break_down(owner_.launch_.error());
      return true;
  }
  return true;
}

bool Communicator::Operation::go_on_bereft() {
  const Status failure = owner_.membership_->failure();
  if (stage_ == Stage::running && may_outlive(failure) && !owner_.is_aborted_) {
    const exec::Launch::State state = owner_.launch_.advance();
    if (state == exec::Launch::State::done) return end({}), true;
    if (state == exec::Launch::State::moved) {
      outlives_until_ns_ = 0;
      return true;
    }
    if (state == exec::Launch::State::blocked && outlives(failure, blocked().peer)) return false;
  }
  end(owner_.fail(failure));
  return true;
}

std::string Communicator::Operation::waiting() const {
  return fmt::format("collective number {}, {}", call_.sequence, call_.text());
}

void Communicator::Operation::break_down(Status why) {
  const bool mismatch = why.code() == Code::Mismatch && owner_.board_ != nullptr;
  if (!mismatch && why.code() != Code::RemoteError) return end(owner_.fail(std::move(why)));
  if (mismatch) owner_.ask(why.culprits()[0]);
  suspicion_.begin(std::move(why), clock.now_ns());
}

Blocked Communicator::Operation::blocked() const {
  if (stage_ == Stage::launching) return {BlockedOn::kernel, -1, 0, 0};
  if (stage_ != Stage::opening) return owner_.launch_.blocked();
  return on_device() ? owner_.device_->links().blocked() : owner_.links_->blocked();
}

void Communicator::Operation::tell_wait() {
  const WaitPhase phase = stage_ == Stage::opening ? WaitPhase::opening : WaitPhase::moving;
  record_.tell(suspicion_.held() ? WaitPhase::blaming : phase, blocked());
}

// Before a sleep: who keeps this rank waiting may have called something else, or have gone.
void Communicator::Operation::question_peer() {
  const Blocked blocked = this->blocked();
  if (blocked.peer < 0 || !standstill_.due(blocked.peer, clock.now_ns())) return;
  if (standstill_.times() == 1 && owner_.board_ != nullptr) owner_.ask(blocked.peer);
  suspect_departure(*owner_.membership_, blocked.peer,
                    stage_ == Stage::opening || owner_.launch_.waits_on_memory());
  if (suspicion_.held()) return;
  Status seen = look_at_peers();
  if (!seen.ok()) end(owner_.fail(std::move(seen)));
}

Status Communicator::Operation::look_at_peers() const {
  const std::int64_t now_ns = clock.now_ns(), limit_ns = owner_.liveness_ns();
  if (stage_ == Stage::running && !on_device())
    GYRE_TRY(owner_.links_->check_reached(now_ns, limit_ns));
  if (stage_ == Stage::running) return owner_.launch_.look_at_peers(now_ns, limit_ns);
  return on_device() ? Status() : owner_.links_->look_at_peers(now_ns, limit_ns);
}

// Whom this rank waits for may wait itself: first it is found out who is to blame.
void Communicator::Operation::expire() {
  if (stage_ == Stage::recalling || tracing_.is_under_way()) return;
  const Blocked blocked = this->blocked();
  if (blocked.peer < 0) return time_out({"nothing says of which rank", {}});
  tracing_.begin(*owner_.membership_, owner_.rank_, blocked.peer, call_.sequence, clock.now_ns());
}

void Communicator::Operation::time_out(const Tracing::Verdict& verdict) {
  const Blocked blocked = this->blocked();
  const std::string whom =
      blocked.peer < 0 ? std::string() : fmt::format(" from rank {}", blocked.peer);
  Status late(Code::Timeout, fmt::format("{} number {} of {} elements waited {} s for {}{}: {}",
                                         function_name(request_->function), call_.sequence,
                                         request_->count, limit_ns() / ns_per_s,
                                         blocked_on_name(blocked.what), whom, verdict.text));
  end(owner_.fail(std::move(late).blame(verdict.culprits)));
}

bool Communicator::Operation::arm(WaitSet& set) {
  if (stage_ == Stage::recalling) return true;  // it looks again when the sleep is over
  if (owner_.membership_->failed()) return stage_ == Stage::running && owner_.launch_.arm(set);
  if (!suspicion_.held()) question_peer();
  if (suspicion_.held() || finished()) return !finished();
  if (stage_ == Stage::recalling) return true;
  if (stage_ == Stage::running) return owner_.launch_.arm(set);
  if (!on_device()) return owner_.links_->arm(set);
  auto& word = owner_.membership_->changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  return true;
}

void Communicator::Operation::disarm() {
  if (stage_ == Stage::opening && !on_device()) owner_.links_->disarm();
  if (stage_ == Stage::running) owner_.launch_.disarm();
}

}  // namespace gyre::comm
