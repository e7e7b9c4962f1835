// OperationBase: the common part of collectives and of sends and receives: a record for tools, and
// the reaction to a peer that does not come.
#pragma once

#include "lib/comm/communicator_state.h"
#include "lib/comm/resumable.h"
#include "lib/comm/stall_timer.h"
#include "lib/comm/suspicion.h"
#include "lib/comm/tracing.h"

#include <optional>
#include <string>

namespace gyre::comm {

class OperationBase : public Resumable {
 public:
  OperationBase(CommunicatorState& state, WaitLane lane)
      : state_(state), record_(state.rank_state, lane) {}
  void break_off(const Status& why) override { (void)state_.fail(why); }
  std::int64_t limit_ns() const override { return state_.timeout_ns(); }

 protected:
  // What the operation is, for errors.
  virtual std::string waiting() const = 0;
  virtual void end(Status outcome) { finish(std::move(outcome)); }

  void begin();
  void moved() {
    record_.moved();
    stall_timer_.moved();
  }
  // At each look of the stall timer: the peer may have left. What a socket still carries may be the
  // last words of one who has; its end tells then, so nothing may be under way.
  void suspect_departure(int peer, bool nothing_under_way);
  // What comes before the operation itself at each look: a failure, or what is done about a peer
  // that does not come. Whether anything moved; nothing: it may go on.
  std::optional<bool> settle_trouble() {
    if (state_.membership->failed()) [[unlikely]]
      return drain_after_failure();
    if (suspicion_.held()) return settle_suspicion();
    return tracing_.is_under_way() ? settle_tracing() : std::nullopt;
  }
  // Goes on with what a peer that has failed gave before, or ends.
  virtual bool drain_after_failure() = 0;
  virtual void time_out(const Tracing::TraceVerdict& verdict) = 0;
  // Whether it may end well though the communicator has failed: a rank may end when its own part
  // is over, and what it gave is worked through.
  bool may_finish_after(const Status& failure) const {
    return failure.code() == Code::RemoteError && !suspicion_.held() && !state_.is_aborted();
  }
  // The same when nothing moves, and it waits for `peer`.
  bool may_still_wait_after(const Status& failure, int peer);
  void finish(Status outcome) {
    record_.end(outcome);
    Resumable::finish(std::move(outcome));
  }

  CommunicatorState& state_;
  OperationRecord record_;
  Suspicion suspicion_;
  StallTimer stall_timer_;
  Tracing tracing_;                  // once it has waited too long
  std::int64_t drain_until_ns_ = 0;  // while nothing moves, after a rank has ended
  int seen_to_have_left_ = -1;       // the peer it waits for, when it last stalled

 private:
  // Goes on holding the suspicion, or ends with an error.
  bool settle_suspicion();
  std::optional<bool> settle_tracing();
};

}  // namespace gyre::comm
