// CollectiveOp: runs the collectives of one communicator, one at a time. It opens links, then has
// the backend carry the call out.
//
// A small call that is like one of the last takes a shorter way: `repeat`. It writes what tools and
// peers see of the call, and does the moves that are bound. It leaves the unusual to the long way,
// before the call has begun, or in its middle by `take_over`.
#pragma once

#include "lib/call/collective_call.h"
#include "lib/comm/backend.h"
#include "lib/comm/operation_base.h"
#include "lib/comm/repeatable_calls.h"

#include <cstdint>

namespace gyre::comm {

class CollectiveOp final : public OperationBase {
 public:
  // They outlive it. The policy is for calls once all ranks have joined.
  CollectiveOp(CommunicatorState& state, Backend& backend, const WaitPolicy& policy)
      : OperationBase(state, WaitLane::collective),
        policy_(policy),
        of_communicator_(backend),
        backend_(&backend),
        sequence_(static_cast<std::uint64_t>(state.options.settings.first_sequence)),
        repeatable_(backend.repeatable_calls()) {}
  // With `more` collectives of a group to come.
  void begin(const Request& request, bool more);
  // not_this: nothing has happened. waits: it has begun, and `take_over` has to follow, with the
  // request of this call; it may have failed already.
  enum class Repeated : std::uint8_t { not_this, done, waits };
  Repeated repeat(const CollectiveCall& call);
  void take_over(const Request& request);
  bool advance() override;
  void expire() override;
  bool arm(WaitSet& set) override;
  void disarm() override;
  void tell_wait() override;

 private:
  // Recalling: it has failed, and a peer is still in the middle of using a buffer of its.
  enum class Stage { opening, running, recalling };
  // Not before peers have let go of the buffers of this call, if it failed.
  void end(Status outcome) override;
  bool open();
  void bind();
  void launch();
  bool take(Backend::State state);
  bool recall();
  void close(Status outcome);
  bool drain_after_failure() override;
  void break_down(Status why);
  void question_peer();
  void time_out(const Tracing::TraceVerdict& verdict) override;
  std::string waiting() const override;

  void note_repeatable();
  bool change_to(RepeatableCall& kind);
  Repeated wait_for(exec::ShortRun& run);

  const WaitPolicy& policy_;
  Backend& of_communicator_;
  Backend* backend_;  // of this call
  const Request* request_ = nullptr;
  bool more_follow_ = false;
  Stage stage_ = Stage::opening;
  // Begins at GYRE_FIRST_SEQUENCE. Of 64 bits one call a nanosecond takes 584 years; flags keep 40
  // of them, which come round after 6 days of calls of half a microsecond.
  std::uint64_t sequence_;
  CallRecord call_;
  RepeatableCalls* const repeatable_;  // null: none
  Status verdict_;                     // while recalling
  std::int64_t recall_until_ns_ = 0;
};

[[gnu::always_inline]] inline CollectiveOp::Repeated CollectiveOp::repeat(
    const CollectiveCall& call) {
  RepeatableCall* const kind = repeatable_ != nullptr ? repeatable_->find(call) : nullptr;
  if (kind == nullptr) [[unlikely]]
    return Repeated::not_this;
  if (!kind->takes(call.send, call.receive) || !state_.is_sound()) [[unlikely]]
    return Repeated::not_this;
  const std::uint64_t sequence = ++sequence_;
  record_.begin(sequence, kind->flight);
  exec::ShortRun& run = *kind->run;
  const auto* const input = static_cast<const std::byte*>(call.send);
  auto* const output = static_cast<std::byte*>(call.receive);
  CallHistory* const history = kind->history;
  const bool goes_on = kind != repeatable_->last()
                           ? change_to(*kind)
                           : history == nullptr || history->repeat(sequence);
  if (!goes_on) [[unlikely]] {
    run.begin(input, output, nullptr);
    return Repeated::waits;
  }
  if (!run.run_at_once(input, output)) {
    const Repeated how = wait_for(run);
    if (how == Repeated::waits) return how;
  }
  record_.end_well(kind->flight, *kind->done);
  return Repeated::done;
}

}  // namespace gyre::comm
