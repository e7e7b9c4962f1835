// Exchange: sends and receives of one communicator that go on together: one call, or all of a
// group.
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
  // They outlive the exchange.
  virtual Status begin(std::span<const Transfer> transfers) = 0;
  // True in `done` when all have come and gone, or are on their stream.
  virtual Status advance(bool& moved, bool& done) = 0;
  virtual Blocked blocked() = 0;
  // How many are still to be done, for errors.
  virtual std::size_t pending() const = 0;
  virtual bool arm(WaitSet& set) = 0;
  virtual void disarm() = 0;
};

}  // namespace gyre::comm
