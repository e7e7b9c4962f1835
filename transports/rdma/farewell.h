// RdmaFarewell: keeps the queue pairs of connections that have ended until their last word, the
// closing notice, has left: a queue pair that is destroyed takes with it what it has not sent. A
// transport and its connections share one. Any thread.
#pragma once

#include "transports/rdma/queues.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre::transport {

class RdmaFarewell {
 public:
  RdmaFarewell() = default;
  // Waits for the last notices, for 100 ms at most.
  ~RdmaFarewell();
  RdmaFarewell(const RdmaFarewell&) = delete;
  RdmaFarewell& operator=(const RdmaFarewell&) = delete;

  void see_off(std::unique_ptr<RdmaQueues> queues);

 private:
  struct Departing {
    std::unique_ptr<RdmaQueues> queues;
    std::int64_t until_ns = 0;
  };
  void reap();

  std::mutex mutex_;
  std::vector<Departing> departing_;  // under the mutex
};

}  // namespace gyre::transport
