// RdmaFarewell: keeps the queue pairs of connections that have ended until their last word, the
// closing notice, has left: a queue pair that is destroyed takes with it what it has not sent. So
// does one that fails, for want of the memory that the peer writes its grants to: that is kept,
// too. A transport and its connections share one. Any thread.
#pragma once

#include "lib/transport/mapped.h"
#include "transports/rdma/queues.h"

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace gyre::transport {

class RdmaFarewell {
 public:
  RdmaFarewell() = default;
  // Waits for the last notices, for 100 ms at most.
  ~RdmaFarewell();
  RdmaFarewell(const RdmaFarewell&) = delete;
  RdmaFarewell& operator=(const RdmaFarewell&) = delete;

  // `notes`: the memory, with its key.
  void see_off(std::unique_ptr<RdmaQueues> queues, loaded::VerbsMemory key, Mapping notes);

 private:
  // Destroyed from the last to the first.
  struct Departing {
    std::shared_ptr<RdmaDevice> device;
    Mapping notes;
    loaded::VerbsMemory key;
    std::unique_ptr<RdmaQueues> queues;
    std::int64_t until_ns = 0;
  };
  void reap();

  std::mutex mutex_;
  std::list<Departing> departing_;  // under the mutex
};

}  // namespace gyre::transport
