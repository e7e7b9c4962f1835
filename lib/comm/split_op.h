// SplitOp: gyreCommSplit, as a Resumable. All ranks of the parent exchange color and key in an
// all-gather. The first rank of each color makes an id and sends it to the others over the control
// plane, because it is a secret. Then they join.
#pragma once

#include "lib/comm/communicator.h"
#include <gyre/gyre.h>

#include <memory>
#include <optional>
#include <vector>

namespace gyre::comm {

class Process;

class SplitOp final : public Resumable {
 public:
  // `target` holds NULL, and gets the handle of the child if there comes to be one.
  SplitOp(Process& process, Communicator& parent, int color, int key, gyreComm_t* target,
          CommunicatorOptions options);

  bool advance() override;
  void expire() override;
  void break_off(const Status& why) override;
  bool arm(WaitSet& set) override;
  void disarm() override;
  void tell_wait() override;
  std::int64_t limit_ns() const override { return parent_.timeout_ns(); }

 private:
  enum class Stage { gathering, meeting, joining };
  struct Wish {
    int color, key;
  };
  bool advance_gathering();
  bool advance_meeting();
  bool advance_joining();
  bool fail(Status why);
  bool give_up(const Status& why);
  bool await_cause(const Status& failure);
  // The parent's ranks of this color in the order of the child's; empty for no color.
  std::vector<int> members() const;
  control::Audience audience() const;
  Status lead();
  Status join(const trust::UniqueId& id);

  Process& process_;
  Communicator& parent_;
  gyreComm_t* const target_;
  const CommunicatorOptions options_;
  std::vector<Wish> wishes_;  // by the parent's rank
  Request gathering_;
  bool begun_ = false;
  Stage stage_ = Stage::gathering;
  std::vector<int> members_;
  std::uint64_t message_key_ = 0;
  std::unique_ptr<Communicator> child_;
  std::int64_t failed_ns_ = 0;  // since when the child has failed; 0: it has not
};

}  // namespace gyre::comm
