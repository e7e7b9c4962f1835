// Sequence: the calls of one group on one communicator. Collectives run one after the other. All
// sends and receives run at once, beside the collectives; on a device, after them. The sequence
// ends when all parts that were begun have ended. The calling thread runs it, or an entry of a
// stream.
#pragma once

#include "lib/comm/communicator.h"
#include "lib/comm/stream.h"

#include <vector>

namespace gyre::comm {

class Sequence final : public Resumable {
 public:
  explicit Sequence(Communicator& communicator) : communicator_(communicator) {}
  // It begins when the communicator's queue is empty. The process may end before: then the worker
  // is over.
  Sequence(Communicator& communicator, const StreamWorker& worker)
      : communicator_(communicator), queued_on_(&worker) {}
  void add(const Work& work);
  Communicator& communicator() { return communicator_; }

  bool advance() override;
  void expire() override;
  void break_off(const Status& why) override {
    const Status lasting = communicator_.fail(why);
    if (failure_.ok()) failure_ = lasting;
  }
  bool arm(WaitSet& set) override;
  void disarm() override;
  void tell_wait() override;
  std::int64_t limit_ns() const override;

 private:
  bool waits_for_queue() const;
  bool begins_with_join() const;
  void begin_next();
  void begin_exchange();
  void fail(const Status& why);
  bool advance_part(Resumable*& part);

  Communicator& communicator_;
  std::vector<Work> works_;  // collectives, joins and splits; none is added once it has begun
  std::vector<Transfer> transfers_;
  Request exchanged_;  // all of them
  std::size_t next_ = 0;
  const StreamWorker* const queued_on_ = nullptr;
  bool held_ = true;                // nothing runs: it may have to wait for the queue
  std::int64_t seen_ns_ = 0;        // when it was first asked to advance
  std::int64_t part_began_ns_ = 0;  // the last part
  Resumable* current_ = nullptr;
  Resumable* exchange_ = nullptr;
  Status failure_;  // of the first part that failed
};

}  // namespace gyre::comm
