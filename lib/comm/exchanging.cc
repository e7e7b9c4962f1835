// Sends and receives of a communicator, as a Resumable.
#include "lib/base/log.h"
#include "lib/comm/communicator.h"
#include "lib/control/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace gyre::comm {
namespace {

const SystemClock clock;

}  // namespace

Resumable& Communicator::begin_exchange(const Request& request) {
  auto idle = std::ranges::find_if(exchangings_, [](const auto& one) { return one->is_idle(); });
  if (idle == exchangings_.end())
    idle = exchangings_.insert(idle, std::make_unique<Exchanging>(*this));
  (*idle)->begin(request);
  return **idle;
}

void Communicator::Exchanging::begin(const Request& request) {
  transfers_ = request.transfers;
  if (logs_trace(Subsystem::p2p)) [[unlikely]]
    for (const Transfer& one : *transfers_)
      log_trace(Subsystem::p2p, "communicator {}rank {}: {} {} bytes, rank {}, tag {}",
                owner_.options_.name, owner_.rank_, one.sends ? "send" : "receive", one.bytes,
                one.peer, one.tag);
  Operating::begin();
  record_.begin(flight_call(*transfers_));
  if (owner_.membership_->failed()) [[unlikely]] {  // nothing of it is with the exchange
    transfers_ = nullptr;
    return finish(owner_.fail(owner_.membership_->failure()));
  }
  batch_.begin(*transfers_);
  Status begun = owner_.exchange_->begin(batch_);
  if (!begun.ok()) end(owner_.fail(std::move(begun)));
}

void Communicator::Exchanging::end(Status outcome) {
  if (outcome.ok() && owner_.on_device()) owner_.note_launch();
  owner_.exchange_->end(batch_, outcome);
  if (leads()) owner_.leading_ = nullptr;
  transfers_ = nullptr;
  finish(std::move(outcome));
}

bool Communicator::Exchanging::advance() {
  if (owner_.leading_ == nullptr) owner_.leading_ = this;
  if (owner_.membership_->failed()) [[unlikely]]
    return go_on_bereft();
  if (suspicion_.held()) return owner_.settle_suspicion(suspicion_, waiting(), *this);
  if (tracing_.is_under_way()) [[unlikely]]
    if (const auto verdict = tracing_.advance(*owner_.membership_, clock.now_ns()))
      return time_out(*verdict), true;
  bool moved = false;
  Status status = leads() ? owner_.exchange_->advance(moved) : Status();
  if (moved) {
    record_.moved();
    standstill_.moved();
  }
  if (!status.ok() && status.code() == Code::RemoteError) {
    suspicion_.begin(std::move(status), clock.now_ns());
  } else if (!status.ok()) {
    end(owner_.fail(std::move(status)));
  } else if (batch_.is_done()) {
    end({});
  } else if (!moved) {
    record_.blocked();
  }
  return moved || finished();
}

// Whoever gives up ends them all: so each takes what has come for any of them first.
bool Communicator::Exchanging::go_on_bereft() {
  const Status failure = owner_.membership_->failure();
  if (may_outlive(failure) && !owner_.is_aborted_ && !owner_.on_device()) {
    bool moved = false;
    const Status status = owner_.exchange_->advance(moved);
    if (batch_.is_done()) return end({}), true;
    if (moved) outlives_until_ns_ = 0;
    if (status.ok() && (moved || outlives(failure, blocked().peer))) return moved;
  }
  end(owner_.fail(failure));
  return true;
}

std::string Communicator::Exchanging::waiting() const {
  return fmt::format("{} of {} sends and receives", batch_.open(), transfers_->size());
}

void Communicator::Exchanging::expire() {
  if (tracing_.is_under_way()) return;
  const Blocked blocked = this->blocked();
  if (blocked.peer < 0)
    return tracing_.begin_with_all(*owner_.membership_, owner_.rank_, clock.now_ns());
  tracing_.begin(*owner_.membership_, owner_.rank_, blocked.peer, 0, clock.now_ns());
}

void Communicator::Exchanging::time_out(const Tracing::Verdict& verdict) {
  const Blocked blocked = this->blocked();
  const std::string whom =
      blocked.peer == any_source ? "any rank" : fmt::format("rank {}", blocked.peer);
  Status late(Code::Timeout, fmt::format("{} waited {} s; the first for {} from {}: {}", waiting(),
                                         limit_ns() / ns_per_s, blocked_on_name(blocked.what), whom,
                                         verdict.text));
  end(owner_.fail(std::move(late).blame(verdict.culprits)));
}

// Waits for a message of any rank, where nobody is left to send one.
Status Communicator::abandoned() const {
  std::vector<int> all(static_cast<std::size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> others = all;
  std::erase(others, rank_);
  return Status(Code::Mismatch,
                fmt::format("{} left the communicator (gyreCommDestroy), and rank {} waits for a "
                            "message of any rank",
                            control::rank_text(others), rank_))
      .blame(all);
}

// As for a collective; and whoever may send to one who takes from any may have left.
void Communicator::Exchanging::question_peer() {
  const Blocked blocked = this->blocked();
  if (blocked.what == BlockedOn::nothing || owner_.on_device() ||
      !standstill_.due(blocked.peer, clock.now_ns()))
    return;
  if (blocked.peer >= 0)
    suspect_departure(
        *owner_.membership_, blocked.peer,
        blocked.what == BlockedOn::connection || owner_.exchange_->waits_on_memory(batch_));
  else if (standstill_.times() > 1 && owner_.others_have_left() &&
           !owner_.exchange_->may_come_from_anyone())
    return end(owner_.fail(owner_.abandoned()));
  if (suspicion_.held() || !leads()) return;
  Status seen = owner_.exchange_->look_at_peers(clock.now_ns(), owner_.liveness_ns());
  if (!seen.ok()) end(owner_.fail(std::move(seen)));
}

bool Communicator::Exchanging::arm(WaitSet& set) {
  if (owner_.membership_->failed()) return !leads() || owner_.exchange_->arm(set);
  if (!suspicion_.held()) question_peer();
  if (finished()) return false;
  return suspicion_.held() || !leads() || owner_.exchange_->arm(set);
}

void Communicator::Exchanging::tell_wait() {
  if (leads()) record_.tell(suspicion_.held() ? WaitPhase::blaming : WaitPhase::moving, blocked());
}

void Communicator::Exchanging::disarm() {
  if (leads()) owner_.exchange_->disarm();
}

}  // namespace gyre::comm
