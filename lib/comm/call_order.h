// CallOrder: the order in which the calls of all threads on one communicator run. Each call takes a
// place when it is made. Streams, the progress thread and callers look here whose turn it is.
#pragma once

#include "lib/base/handle_table.h"
#include "lib/comm/driver_seat.h"

#include <atomic>
#include <cstdint>

namespace gyre::comm {

class Communicator;

struct CallOrder {
  // One thread at a time is inside a call without a stream: it occupies the communicator in the
  // table of handles (ExclusiveUse). Null: it is in none yet.
  HandleTable<Communicator>* table = nullptr;
  std::uint64_t handle = 0;
  // Operations queued on host streams and not yet finished. A call without a stream waits for them.
  std::atomic<std::uint32_t> queued{0};
  // Of these, the ones whose turn has come. Counted before it is asked whether the communicator is
  // broken: who finds it broken, and none here, knows that none begins.
  std::atomic<std::uint32_t> begun{0};
  // Whose turn it is to go on with what is queued; see HostStream.
  DriverSeat driver;
  // Order of queued operations: the next number to give, and the next to run. Sends and receives
  // have numbers of their own, in which they begin: they go on side by side, and beside the rest.
  std::uint64_t next_ticket = 0, next_transfer = 0;
  std::atomic<std::uint64_t> running_ticket{0}, beginning_transfer{0};
};

}  // namespace gyre::comm
