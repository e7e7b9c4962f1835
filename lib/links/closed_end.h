// ClosedEnd: the sending end of a link whose peer left before this rank could connect. It never has
// room for a message, and becomes an error when an operation waits for room. A call that has
// nothing for that peer does not need it.
#pragma once

#include "lib/transport/transport.h"

namespace gyre::comm {

class ClosedEnd final : public transport::Connection {
 public:
  explicit ClosedEnd(Status why) : why_(std::move(why)) {
    view_.control = &control_;
    view_.shape = {.slot_count = 0, .line_count = 0, .slot_bytes = 0};
  }

  bool ready() const override { return true; }
  const transport::FifoView& fifo() const override { return view_; }
  Status progress() override { return wanted_ ? why_ : Status(); }
  bool flushed() const override { return true; }
  bool needs_progress() const override { return true; }
  void arm(WaitSet&) override { wanted_ = true; }
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  const Status why_;
  bool wanted_ = false;
  transport::FifoControl control_{};
  transport::FifoView view_;
};

}  // namespace gyre::comm
