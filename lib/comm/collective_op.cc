#include "lib/comm/collective_op.h"

#include "lib/base/log.h"
#include "lib/comm/short_wait.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {
namespace {

// Of a peer in the middle of one move with a buffer of this call: far longer than a move takes, and
// short enough for an abort. After that, until pages can be withdrawn, it asks once in that time.
constexpr std::int64_t max_recall_ns = 500 * ns_per_ms;

}  // namespace

void CollectiveOp::begin(const Request& request, bool more) {
  if (repeatable_ != nullptr) repeatable_->set_last(nullptr);
  request_ = &request;
  more_follow_ = more;
  backend_ = request.on_host ? &of_communicator_.on_host() : &of_communicator_;
  stage_ = Stage::opening;
  OperationBase::begin();
  call_ = CallRecord::of(request, ++sequence_);
  if (logs_trace(Subsystem::coll)) [[unlikely]]
    log_trace(Subsystem::coll, "communicator {}rank {}: number {}: {}", state_.options.name,
              state_.rank, call_.sequence, call_.text());
  record_.begin(flight_call(request, call_.sequence));
  if (state_.call_history != nullptr)
    if (auto mismatch = state_.call_history->begin(call_))
      return end(state_.fail(std::move(*mismatch)));
  if (state_.membership->failed()) [[unlikely]]
    return end(state_.fail(state_.membership->failure()));
  if (backend_->is_bound(request, call_)) [[likely]]
    return launch();
  Status chosen = backend_->choose(request);
  // What the settings rule out they rule out on all ranks: nothing has happened.
  if (chosen.code() == Code::InvalidUsage || chosen.code() == Code::InvalidArgument)
    return end(std::move(chosen));
  if (chosen.ok() && backend_->is_open()) return bind();
  if (chosen.ok()) chosen = backend_->begin_opening();
  if (!chosen.ok()) end(state_.fail(std::move(chosen)));
}

void CollectiveOp::bind() {
  Status bound = backend_->bind(*request_, call_);
  if (!bound.ok()) return end(state_.fail(std::move(bound)));
  launch();
}

void CollectiveOp::launch() {
  record_.choose(backend_->choice());
  stage_ = Stage::running;
  note_repeatable();
  const Backend::State begun = backend_->begin(*request_, call_.sequence, more_follow_);
  if (begun != Backend::State::moved) (void)take(begun);
}

// ------------------------------------------------------------------------------ the short way

void CollectiveOp::note_repeatable() {
  const Request& request = *request_;
  const CommunicatorOptions& options = state_.options;
  if (backend_ != &of_communicator_ || options.driver != nullptr || !options.blocking ||
      request.tables != nullptr || request.op == ReduceOp::pre_mul_sum ||
      request.function == Function::split || request.block_bytes() >= timed_flight_bytes ||
      logs_trace(Subsystem::coll))
    return;
  RepeatableCall* const place = backend_->repeatable_place();
  if (place == nullptr) return;
  RepeatableCall& next = *place;
  next.run = backend_->short_run();
  next.shape = {.count = request.count,
                .type = static_cast<int>(request.type),
                .op = static_cast<int>(request.op),
                .root = request.root,
                .function = request.function};
  next.last_send = RepeatableCall::no_buffer();
  next.buffers = BufferShape::of(request.collective, state_.size, state_.rank,
                                 state_.rank == request.root, request.block_bytes());
  FlightCall flight = flight_call(request, 0);
  flight.algorithm = record_.algorithm_code(backend_->choice());
  flight.protocol = static_cast<std::uint8_t>(backend_->choice().protocol);
  next.flight = ShortFlight::of(flight);
  next.done = &record_.done(request.function);
  next.history = state_.call_history.get();
  next.record = call_;
  next.signature = signature_of(request);
  repeatable_->set_last(place);
}

// The last call was another one. False: see CallHistory::change.
[[gnu::noinline]] bool CollectiveOp::change_to(RepeatableCall& kind) {
  repeatable_->set_last(&kind);
  call_ = kind.record;
  call_.sequence = sequence_;
  if (kind.history == nullptr) return true;
  const bool goes_on = kind.history->change(call_);
  kind.run->set_signature(hash_with(kind.signature, kind.history->hash()));
  return goes_on;
}

[[gnu::noinline]] CollectiveOp::Repeated CollectiveOp::wait_for(exec::ShortRun& run) {
  using State = exec::ShortRun::State;
  record_.blocked();
  const bool done = wait_shortly(policy_, [&] {
    const State state = run.take_turn();
    if (state == State::done) return ShortWait::done;
    if (state == State::other_call || state == State::failed || !state_.is_sound())
      return ShortWait::ends;
    return state == State::moved ? ShortWait::moved : ShortWait::waits;
  });
  return done ? Repeated::done : Repeated::waits;
}

void CollectiveOp::take_over(const Request& request) {
  request_ = &request;
  call_.sequence = sequence_;
  more_follow_ = false;
  OperationBase::begin();
  stage_ = Stage::opening;
  // Somebody may have asked for it meanwhile.
  if (state_.call_history != nullptr)
    if (auto mismatch = state_.call_history->begin(call_))
      return end(state_.fail(std::move(*mismatch)));
  stage_ = Stage::running;
  backend_->take_over(request, call_.sequence);
}

// Where the call has come to. True if anything moved.
bool CollectiveOp::take(Backend::State state) {
  switch (state) {
    case Backend::State::blocked:
      record_.blocked();
      return false;
    case Backend::State::moved:
      moved();
      return true;
    case Backend::State::done:
      finish({});
      return true;
    case Backend::State::failed:
      break_down(backend_->error());
      return true;
  }
  return true;
}

bool CollectiveOp::open() {
  bool moved = false;
  auto open = backend_->open(moved);
  if (!open.ok())
    break_down(std::move(open).status());
  else if (*open)
    bind();
  else
    return moved;
  return true;
}

void CollectiveOp::end(Status outcome) {
  if (stage_ == Stage::recalling) return;  // its verdict stands
  if (stage_ != Stage::running) return close(std::move(outcome));
  verdict_ = std::move(outcome);
  recall_until_ns_ = system_clock.now_ns() + max_recall_ns;
  stage_ = Stage::recalling;
  (void)recall();
}

// The caller may do with its buffers what it likes once this has said yes.
bool CollectiveOp::recall() {
  using InUse = exec::Launch::InUse;
  const auto [in_use, by] = backend_->recall();
  if (in_use != InUse::no) {
    if (system_clock.now_ns() < recall_until_ns_) return false;
    // A thread of this process lives, and comes to the end of its move.
    if (in_use == InUse::shared) return false;
    recall_until_ns_ = system_clock.now_ns() + max_recall_ns;
    if (!backend_->withdraw(by)) return false;
  }
  close(std::move(verdict_));
  return true;
}

void CollectiveOp::close(Status outcome) {
  backend_->close();
  finish(std::move(outcome));
}

bool CollectiveOp::advance() {
  if (stage_ == Stage::recalling) [[unlikely]]
    return recall();
  if (const std::optional<bool> moved = settle_trouble()) [[unlikely]]
    return *moved;
  return stage_ == Stage::opening ? open() : take(backend_->advance());
}

bool CollectiveOp::drain_after_failure() {
  const Status failure = state_.membership->failure();
  if (stage_ == Stage::running && may_finish_after(failure) &&
      backend_->may_finish_after_failure()) {
    const Backend::State state = backend_->advance();
    if (state == Backend::State::moved) drain_until_ns_ = 0;
    if (state == Backend::State::moved || state == Backend::State::done) return take(state);
    if (state == Backend::State::blocked && may_still_wait_after(failure, backend_->blocked().peer))
      return false;
  }
  end(state_.fail(failure));
  return true;
}

std::string CollectiveOp::waiting() const {
  return fmt::format("collective number {}, {}", call_.sequence, call_.text());
}

void CollectiveOp::break_down(Status why) {
  const bool mismatch = why.code() == Code::Mismatch && state_.call_history != nullptr;
  if (!mismatch && why.code() != Code::RemoteError) return end(state_.fail(std::move(why)));
  if (mismatch) state_.ask(why.culprits()[0]);
  suspicion_.begin(std::move(why), system_clock.now_ns());
}

void CollectiveOp::tell_wait() {
  const WaitPhase phase = stage_ == Stage::opening ? WaitPhase::opening : WaitPhase::moving;
  record_.tell(suspicion_.held() ? WaitPhase::blaming : phase, backend_->blocked());
}

// Before a sleep: who keeps this rank waiting may have called something else, or have gone.
void CollectiveOp::question_peer() {
  const Blocked blocked = backend_->blocked();
  const std::int64_t now_ns = system_clock.now_ns();
  if (blocked.peer < 0 || !stall_timer_.due(blocked.peer, now_ns)) return;
  if (stall_timer_.times() == 1) state_.ask(blocked.peer);
  suspect_departure(blocked.peer, backend_->waits_on_memory());
  if (suspicion_.held()) return;
  Status seen = backend_->look_at_peers(now_ns, state_.liveness_ns());
  if (!seen.ok()) end(state_.fail(std::move(seen)));
}

// Whom this rank waits for may wait itself: first it is found out who is to blame.
void CollectiveOp::expire() {
  if (stage_ == Stage::recalling || tracing_.is_under_way()) return;
  const Blocked blocked = backend_->blocked();
  if (blocked.peer < 0) return time_out({"it is not known for which rank", {}});
  tracing_.begin(*state_.membership, state_.rank, blocked.peer, call_.sequence,
                 system_clock.now_ns());
}

void CollectiveOp::time_out(const Tracing::TraceVerdict& verdict) {
  const Blocked blocked = backend_->blocked();
  const std::string whom =
      blocked.peer < 0 ? std::string() : fmt::format(" from rank {}", blocked.peer);
  Status late(Code::Timeout, fmt::format("{} number {} of {} elements waited {} s for {}{}: {}",
                                         function_name(request_->function), call_.sequence,
                                         request_->count, limit_ns() / ns_per_s,
                                         blocked_on_name(blocked.what), whom, verdict.text));
  end(state_.fail(std::move(late).blame(verdict.culprits)));
}

bool CollectiveOp::arm(WaitSet& set) {
  if (stage_ == Stage::recalling) return true;  // it looks again when the sleep is over
  if (state_.membership->failed()) return stage_ == Stage::running && backend_->arm(set);
  if (!suspicion_.held()) question_peer();
  if (suspicion_.held() || finished()) return !finished();
  return stage_ == Stage::recalling || backend_->arm(set);
}

void CollectiveOp::disarm() {
  if (stage_ != Stage::recalling) backend_->disarm();
}

}  // namespace gyre::comm
