// Exchange: all unfinished sends and receives of one communicator. Those that were begun together
// (a call's, or all of a group's) are a batch and end together. On the host, several batches run
// side by side.
#pragma once

#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/sendrecv/batch.h"

namespace gyre::comm {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Adds a batch that has begun. It stays where it is until `end`.
  virtual Status begin(Batch& batch) = 0;
  // Goes on with all batches. One is done when all of it have come and gone, or are on their
  // stream. An error is all of theirs.
  virtual Status advance(bool& moved) = 0;
  // The first thing that holds the batch up, for errors.
  virtual Blocked blocked(const Batch& batch) = 0;
  // Whether those whom batches wait for can still come, see Connection::look_at_peer.
  virtual Status look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) = 0;
  // Whether the batch waits for memory alone, see Launch::waits_on_memory.
  virtual bool waits_on_memory(const Batch& batch) = 0;
  // Whether a message may still come of somebody, all of whom have left.
  virtual bool may_come_from_anyone() = 0;
  // Forgets the batch, done or not.
  // `why` it is given up, if it is not done.
  virtual void end(Batch& batch, const Status& why) = 0;
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;
};

}  // namespace gyre::comm
