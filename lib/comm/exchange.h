// Exchange: the sends and receives of one communicator that are under way. What was begun together
// (a call's, or all of a group's) ends together; on the host, several such batches go on side by
// side.
#pragma once

#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/comm/transfer.h"

#include <cstddef>
#include <span>

namespace gyre::comm {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Adds a batch. It stays where it is until `end`.
  virtual Status begin(std::span<const Transfer> batch) = 0;
  // Goes on with all batches. An error is all of theirs.
  virtual Status advance(bool& moved) = 0;
  // Whether all of the batch have come and gone, or are on their stream.
  virtual bool is_done(std::span<const Transfer> batch) const = 0;
  // The first thing that holds the batch up, and how many of it are still to be done, for errors.
  virtual Blocked blocked(std::span<const Transfer> batch) = 0;
  virtual std::size_t pending(std::span<const Transfer> batch) const = 0;
  // Forgets the batch, done or not.
  virtual void end(std::span<const Transfer> batch) = 0;
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;
};

}  // namespace gyre::comm
