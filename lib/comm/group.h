// Group: what a thread's calls between gyreGroupStart and gyreGroupEnd become, and how one call
// alone is carried out. Calls on one communicator run in their order; communicators run side by
// side.
#pragma once

#include "lib/comm/process.h"

namespace gyre::comm {

// Gives it a handle and, if it is non-blocking, a stream of its own; the call has both.
Result<GroupedCall> adopt(std::unique_ptr<Communicator> made);

// Carries calls out, now or queued on their streams, and returns the first error.
Status carry_out(std::vector<GroupedCall> calls);

// The same for one collective without a stream: the path that small messages take.
Status carry_out_now(Communicator& communicator, const Request& request);

// Returns when nothing of it is queued on host streams: what a call without a stream comes after,
// and what is left before it ends. An error if the process ends before that.
Status wait_for_queue(Communicator& communicator);

// Holds a communicator for this thread, or says that another thread is inside.
class Entry {
 public:
  explicit Entry(Communicator& communicator)
      : communicator_(communicator),
        entered_(!communicator.entered.exchange(true, std::memory_order_acquire)) {}
  ~Entry() {
    if (entered_) communicator_.entered.store(false, std::memory_order_release);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  Status status() const {
    return entered_ ? Status()
                    : invalid_usage(
                          "another thread is inside a call on this communicator; one "
                          "communicator is used by one thread at a time");
  }

 private:
  Communicator& communicator_;
  const bool entered_;
};

}  // namespace gyre::comm
