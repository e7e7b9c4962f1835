// SendRecvOp: sends and receives of a communicator that were begun together. Several SendRecvOps
// may be active at one time.
#pragma once

#include "lib/comm/backend.h"
#include "lib/comm/operation_base.h"
#include "lib/sendrecv/batch.h"

#include <memory>
#include <vector>

namespace gyre::comm {

class SendRecvOp final : public OperationBase {
 public:
  // Of all that are under way, the one that goes on with all, waits for all and tells tools of it;
  // null: whichever is advanced next.
  using Leader = SendRecvOp*;
  SendRecvOp(CommunicatorState& state, Backend& backend, Leader& leader)
      : OperationBase(state, WaitLane::transfers), backend_(backend), leader_(leader) {}
  // `so_far`: the record of what has begun already; null: it begins now.
  void begin(const Request& request, const OperationRecord* so_far);
  bool is_idle() const { return transfers_ == nullptr; }
  bool advance() override;
  void expire() override;
  bool arm(WaitSet& set) override;
  void disarm() override;
  void tell_wait() override;

 private:
  void end(Status outcome) override;
  bool leads() const { return leader_ == this; }
  bool drain_after_failure() override;
  void question_peer();
  Status abandoned() const;
  void time_out(const Tracing::TraceVerdict& verdict) override;
  std::string waiting() const override;
  Exchange& exchange() const { return backend_.exchange(); }
  Blocked blocked() const { return exchange().blocked(batch_); }

  Backend& backend_;
  Leader& leader_;
  std::shared_ptr<const std::vector<Transfer>> transfers_;  // null: idle
  Batch batch_;                                             // of them
};

}  // namespace gyre::comm
