// What a communicator does, as Resumables: joining, a collective, sends and receives.
#include "lib/comm/communicator.h"

#include <fmt/format.h>

namespace gyre::comm {
namespace {

const SystemClock clock;

}  // namespace

// ------------------------------------------------------------------------------ joining

bool Communicator::Joining::advance() {
  using State = bootstrap::Membership::State;
  switch (owner_.membership_->state()) {
    case State::joining:
      return false;
    case State::joined: {
      Status settled = owner_.settle();
      finish(settled.ok() ? settled : owner_.fail(std::move(settled)));
      return true;
    }
    default:
      finish(owner_.fail(owner_.membership_->failure()));
      return true;
  }
}

void Communicator::Joining::expire() {
  finish(owner_.fail(Status(Code::Timeout, fmt::format("rank {} of {} could not join in time",
                                                       owner_.rank_, owner_.size_))));
}

bool Communicator::Joining::arm(WaitSet& set) {
  auto& word = owner_.membership_->changed();
  set.add_futex(&word, word.load(std::memory_order_acquire));
  return owner_.membership_->state() == bootstrap::Membership::State::joining;
}

std::int64_t Communicator::Joining::limit_ns() const {
  // The control plane keeps the deadline and knows who is missing; this only bounds its silence.
  return (owner_.options_.settings.init_timeout_s + 5) * ns_per_s;
}

// ------------------------------------------------------------------------------ collective

void Communicator::Operation::begin(const Request& request) {
  request_ = request;
  stage_ = Stage::opening;
  suspicion_.clear();
  restart();
  ++owner_.sequence_;
  Status chosen = owner_.choose(request_);
  if (chosen.ok() && owner_.current_->bound_already) {
    (void)launch();
    return;
  }
  if (chosen.ok()) chosen = owner_.links_->open(owner_.current_->plan);
  if (!chosen.ok()) finish(owner_.fail(std::move(chosen)));
}

bool Communicator::Operation::launch() {
  exec::Call call = owner_.make_call(request_);
  if (request_.op == ReduceOp::pre_mul_sum) call.pre_scalar = &request_.pre_scalar;
  owner_.launch_.begin(owner_.current_->bound, call);
  stage_ = Stage::running;
  return true;
}

bool Communicator::Operation::open() {
  bool moved = false;
  Status status = owner_.links_->advance(moved);
  if (!status.ok()) return break_down(std::move(status)), true;
  if (!owner_.links_->plan_is_open()) return moved;
  Result<exec::BoundPlan> bound = owner_.links_->bind(owner_.current_->plan);
  if (!bound.ok()) return break_down(bound.status()), true;
  owner_.current_->bound = std::move(*bound);
  owner_.current_->bound_already = true;
  return launch();
}

bool Communicator::Operation::advance() {
  if (owner_.membership_->failed()) [[unlikely]] {
    finish(owner_.fail(owner_.membership_->failure()));
    return true;
  }
  if (suspicion_.held()) {
    if (!suspicion_.ripe(clock.now_ns())) return false;
    finish(owner_.fail(suspicion_.take()));
    return true;
  }
  if (stage_ == Stage::opening) return open();
  switch (owner_.launch_.advance()) {
    case exec::Launch::State::blocked:
      return false;
    case exec::Launch::State::moved:
      return true;
    case exec::Launch::State::done:
      finish({});
      return true;
    case exec::Launch::State::failed:
      break_down(owner_.launch_.error());
      return true;
  }
  return true;
}

void Communicator::Operation::break_down(Status why) {
  if (why.code() != Code::RemoteError) return finish(owner_.fail(std::move(why)));
  suspicion_.begin(std::move(why), clock.now_ns());
}

void Communicator::Operation::expire() {
  const Blocked blocked =
      stage_ == Stage::opening ? owner_.links_->blocked() : owner_.launch_.blocked();
  Status late(Code::Timeout,
              fmt::format("{} number {} of {} elements waited {} s for {} from rank {}",
                          function_name(request_.function), owner_.sequence_, request_.count,
                          limit_ns() / ns_per_s, blocked_on_name(blocked.what), blocked.peer));
  finish(owner_.fail(std::move(late).blame({blocked.peer})));
}

bool Communicator::Operation::arm(WaitSet& set) {
  if (owner_.membership_->failed()) return false;
  if (suspicion_.held()) return true;
  return stage_ == Stage::opening ? owner_.links_->arm(set) : owner_.launch_.arm(set);
}

void Communicator::Operation::disarm() {
  if (stage_ == Stage::opening) owner_.links_->disarm();
  if (stage_ == Stage::running) owner_.launch_.disarm();
}

// ------------------------------------------------------------------------------ exchange

void Communicator::Exchanging::begin(const Request& request) {
  transfers_ = request.transfers;
  suspicion_.clear();
  restart();
  Status begun = owner_.exchange_->begin(*transfers_);
  if (!begun.ok()) finish(owner_.fail(std::move(begun)));
}

bool Communicator::Exchanging::advance() {
  if (owner_.membership_->failed()) [[unlikely]] {
    finish(owner_.fail(owner_.membership_->failure()));
    return true;
  }
  if (suspicion_.held()) {
    if (!suspicion_.ripe(clock.now_ns())) return false;
    finish(owner_.fail(suspicion_.take()));
    return true;
  }
  bool moved = false, done = false;
  Status status = owner_.exchange_->advance(moved, done);
  if (!status.ok() && status.code() == Code::RemoteError)
    suspicion_.begin(std::move(status), clock.now_ns());
  else if (!status.ok())
    finish(owner_.fail(std::move(status)));
  else if (done)
    finish({});
  return moved || finished();
}

void Communicator::Exchanging::expire() {
  const Blocked blocked = owner_.exchange_->blocked();
  const bool anyone = blocked.peer == any_source;
  Status late(Code::Timeout,
              fmt::format("{} of {} sends and receives waited {} s; the first for {} from {}",
                          owner_.exchange_->pending(), transfers_->size(), limit_ns() / ns_per_s,
                          blocked_on_name(blocked.what),
                          anyone ? std::string("any rank") : fmt::format("rank {}", blocked.peer)));
  if (!anyone) late = std::move(late).blame({blocked.peer});
  finish(owner_.fail(std::move(late)));
}

bool Communicator::Exchanging::arm(WaitSet& set) {
  if (owner_.membership_->failed()) return false;
  return suspicion_.held() || owner_.exchange_->arm(set);
}

void Communicator::Exchanging::disarm() { owner_.exchange_->disarm(); }

}  // namespace gyre::comm
