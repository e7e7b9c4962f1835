// Group: carries out a thread's calls between gyreGroupStart and gyreGroupEnd, or one call alone.
// Calls on one communicator run in their order. Communicators run side by side.
#pragma once

#include "lib/comm/process.h"

#include <span>
#include <vector>

namespace gyre::comm {

// Carries calls out, now or queued on their streams, and returns the first error.
Status carry_out(StreamWorker& worker, std::vector<GroupedCall> calls);

// The communicators that calls join. If these are not carried out, they are no good: they fail.
class JoiningCalls {
 public:
  explicit JoiningCalls(std::span<const GroupedCall> calls);
  ~JoiningCalls();
  JoiningCalls(const JoiningCalls&) = delete;
  JoiningCalls& operator=(const JoiningCalls&) = delete;
  void note_begun() { begun_ = true; }
  Status give_up(Status why);  // which it returns

 private:
  std::vector<Communicator*> communicators_;  // their handles keep them
  bool begun_ = false;
};

// The same for one collective without a stream: the path that small messages take.
Status carry_out_now(StreamWorker& worker, Communicator& communicator, const Request& request);

// Goes on with what Communicator::take_over gave.
Status carry_on(StreamWorker& worker, const Communicator& communicator, Resumable& operation);

// Returns when nothing of it is queued on host streams: what a call without a stream comes after,
// and what is left before it ends. An error if the process ends before that.
Status wait_for_queue(StreamWorker& worker, Communicator& communicator);

// The same of one stream: what is queued there.
Status wait_for_stream(StreamWorker& worker, HostStream& stream, const WaitPolicy& policy);

// Holds a communicator for this thread, or says that another thread is inside.
class ExclusiveUse {
 public:
  explicit ExclusiveUse(const Communicator& communicator)
      : order_(communicator.order),
        entered_(order_.table == nullptr || order_.table->occupy(order_.handle)) {}
  ~ExclusiveUse() {
    if (entered_ && order_.table != nullptr) order_.table->leave(order_.handle);
  }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;
  Status status() const {
    return entered_ ? Status()
                    : invalid_usage(
                          "another thread is inside a call on this communicator; one "
                          "communicator is used by one thread at a time");
  }

 private:
  const CallOrder& order_;
  const bool entered_;
};

}  // namespace gyre::comm
