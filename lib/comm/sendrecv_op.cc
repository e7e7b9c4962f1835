#include "lib/comm/sendrecv_op.h"

#include "lib/base/log.h"
#include "lib/control/cause.h"

#include <fmt/core.h>

#include <numeric>

namespace gyre::comm {

void SendRecvOp::begin(const Request& request, const OperationRecord* so_far) {
  transfers_ = request.transfers;
  if (logs_trace(Subsystem::p2p)) [[unlikely]]
    for (const Transfer& one : *transfers_)
      log_trace(Subsystem::p2p, "communicator {}rank {}: {} {} bytes, rank {}, tag {}",
                state_.options.name, state_.rank, one.sends ? "send" : "receive", one.bytes,
                one.peer, one.tag);
  OperationBase::begin();
  if (so_far != nullptr)
    record_.take_over(*so_far);
  else
    record_.begin(flight_call(*transfers_));
  if (state_.membership->failed()) [[unlikely]] {  // nothing of it is with the exchange
    transfers_ = nullptr;
    return finish(state_.fail(state_.membership->failure()));
  }
  batch_.begin(*transfers_);
  Status begun = exchange().begin(batch_);
  if (!begun.ok()) end(state_.fail(std::move(begun)));
}

void SendRecvOp::end(Status outcome) {
  exchange().end(batch_, outcome);
  if (leads()) leader_ = nullptr;
  transfers_ = nullptr;
  finish(std::move(outcome));
}

bool SendRecvOp::advance() {
  if (leader_ == nullptr) leader_ = this;
  if (const std::optional<bool> settled = settle_trouble()) [[unlikely]]
    return *settled;
  bool moved = false;
  Status status = leads() ? exchange().advance(moved) : Status();
  if (moved) this->moved();
  if (!status.ok() && status.code() == Code::RemoteError) {
    suspicion_.begin(std::move(status), system_clock.now_ns());
  } else if (!status.ok()) {
    end(state_.fail(std::move(status)));
  } else if (batch_.is_done()) {
    end({});
  } else if (!moved) {
    record_.blocked();
  }
  return moved || finished();
}

// Whoever gives up ends them all: so each takes what has come for any of them first.
bool SendRecvOp::drain_after_failure() {
  const Status failure = state_.membership->failure();
  if (may_finish_after(failure) && backend_.may_finish_after_failure()) {
    bool moved = false;
    const Status status = exchange().advance(moved);
    if (batch_.is_done()) {
      end({});
      return true;
    }
    if (moved) drain_until_ns_ = 0;
    if (status.ok() && (moved || may_still_wait_after(failure, blocked().peer))) return moved;
  }
  end(state_.fail(failure));
  return true;
}

std::string SendRecvOp::waiting() const {
  return fmt::format("{} of {} sends and receives", batch_.open(), transfers_->size());
}

void SendRecvOp::expire() {
  if (tracing_.is_under_way()) return;
  const Blocked blocked = this->blocked();
  if (blocked.peer < 0)
    return tracing_.begin_with_all(*state_.membership, state_.rank, system_clock.now_ns());
  tracing_.begin(*state_.membership, state_.rank, blocked.peer, 0, system_clock.now_ns());
}

void SendRecvOp::time_out(const Tracing::TraceVerdict& verdict) {
  const Blocked blocked = this->blocked();
  const std::string whom =
      blocked.peer == any_source ? "any rank" : fmt::format("rank {}", blocked.peer);
  Status late(Code::Timeout, fmt::format("{} waited {} s; the first for {} from {}: {}", waiting(),
                                         limit_ns() / ns_per_s, blocked_on_name(blocked.what), whom,
                                         verdict.text));
  end(state_.fail(std::move(late).blame(verdict.culprits)));
}

// Waits for a message of any rank, where nobody is left to send one.
Status SendRecvOp::abandoned() const {
  std::vector<int> all(static_cast<std::size_t>(state_.size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> others = all;
  std::erase(others, state_.rank);
  return Status(Code::Mismatch,
                fmt::format("{} left the communicator (gyreCommDestroy), and rank {} waits for a "
                            "message of any rank",
                            control::rank_text(others), state_.rank))
      .blame(all);
}

// As for a collective; and whoever may send to one who takes from any may have left.
void SendRecvOp::question_peer() {
  const Blocked blocked = this->blocked();
  if (blocked.what == BlockedOn::nothing || !stall_timer_.due(blocked.peer, system_clock.now_ns()))
    return;
  if (blocked.peer >= 0)
    suspect_departure(blocked.peer,
                      blocked.what == BlockedOn::connection || exchange().waits_on_memory(batch_));
  else if (stall_timer_.times() > 1 && state_.others_have_left() &&
           !exchange().may_come_from_anyone())
    return end(state_.fail(abandoned()));
  if (suspicion_.held() || !leads()) return;
  Status seen = exchange().look_at_peers(system_clock.now_ns(), state_.liveness_ns());
  if (!seen.ok()) end(state_.fail(std::move(seen)));
}

bool SendRecvOp::arm(WaitSet& set) {
  if (state_.membership->failed()) return !leads() || exchange().arm(set);
  if (!suspicion_.held()) question_peer();
  if (finished()) return false;
  return suspicion_.held() || !leads() || exchange().arm(set);
}

void SendRecvOp::tell_wait() {
  if (leads()) record_.tell(suspicion_.held() ? WaitPhase::blaming : WaitPhase::moving, blocked());
}

void SendRecvOp::disarm() {
  if (leads()) exchange().disarm();
}

}  // namespace gyre::comm
