#include "lib/comm/operation_base.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {

void OperationBase::begin() {
  tracing_.clear();
  suspicion_.clear();
  stall_timer_.moved();
  drain_until_ns_ = 0;
  seen_to_have_left_ = -1;
  restart();
}

// A peer's messages precede its departure, but this rank may have looked for them before it was
// told. So it looks once more between two sightings.
void OperationBase::suspect_departure(int peer, bool nothing_under_way) {
  const bool has_left = nothing_under_way && state_.membership->has_left(peer);
  const int seen = std::exchange(seen_to_have_left_, has_left ? peer : -1);
  if (has_left && seen == peer && stall_timer_.times() > 1)
    suspicion_.begin(Status(Code::RemoteError, "it has left").blame({peer}), system_clock.now_ns());
}

std::optional<bool> OperationBase::settle_tracing() {
  const auto verdict = tracing_.advance(*state_.membership, system_clock.now_ns());
  if (!verdict) return std::nullopt;
  time_out(*verdict);
  return true;
}

// Who has left in peace did not fail: it did not call.
bool OperationBase::settle_suspicion() {
  const std::vector<int>& culprits = suspicion_.what().culprits();
  if (suspicion_.what().code() == Code::RemoteError && culprits.size() == 1 &&
      state_.membership->has_left(culprits[0])) {
    Status absent(Code::Mismatch,
                  fmt::format("rank {} has left the communicator (gyreCommDestroy), and rank {} "
                              "waits for it in {}",
                              culprits[0], state_.rank, waiting()));
    end(state_.fail(std::move(absent).blame({culprits[0], state_.rank})));
    return true;
  }
  if (!suspicion_.ripe(system_clock.now_ns())) return false;
  end(state_.fail(suspicion_.take()));
  return true;
}

// While `peer` lives, it passes on what it got, or gives up, so that there is an end. 50 ms are
// long for a rank that others keep from a core, and short beside the 100 ms in which a death is
// told.
bool OperationBase::may_still_wait_after(const Status& failure, int peer) {
  constexpr std::int64_t max_ns = 50 * ns_per_ms;
  if (std::ranges::find(failure.culprits(), peer) != failure.culprits().end()) return false;
  const std::int64_t now_ns = system_clock.now_ns();
  if (drain_until_ns_ == 0) drain_until_ns_ = now_ns + max_ns;
  return now_ns < drain_until_ns_;
}

}  // namespace gyre::comm
