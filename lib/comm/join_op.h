// JoinOp: joining a communicator. It waits until all ranks have met, compares their join infos, and
// takes the resources that calls will need.
#pragma once

#include "lib/base/wait.h"
#include "lib/comm/backend.h"
#include "lib/comm/resumable.h"

namespace gyre::comm {

class JoinOp final : public Resumable {
 public:
  JoinOp(CommunicatorState& state, Backend& backend) : state_(state), backend_(backend) {}
  bool advance() override;
  void expire() override;
  void break_off(const Status& why) override;
  bool arm(WaitSet& set) override;
  void disarm() override {}
  std::int64_t limit_ns() const override;
  void tell_wait() override;
  // How long calls look before they sleep, once all have joined: from what ranks of this host
  // share.
  const WaitPolicy& wait_policy() const { return policy_; }

 private:
  bool settle();
  Status compare_notes();

  CommunicatorState& state_;
  Backend& backend_;
  bool is_settling_ = false;
  WaitPolicy policy_;
};

}  // namespace gyre::comm
