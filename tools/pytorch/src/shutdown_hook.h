// ShutdownHook: ends all operations before the Python interpreter ends. Until then callbacks of
// futures, which are Python, can still run; after that none begins.
#pragma once

#include "tools/pytorch/src/comm_queue.h"

#include <memory>
#include <mutex>
#include <vector>

namespace gyre_torch {

class ShutdownHook {
 public:
  // This process's, for good. A forked child has its own, and nothing to wait for.
  static ShutdownHook& shared();
  void enlist(const std::shared_ptr<CommQueue>& queue);
  // Waits for what is under way on all queues, and aborts what does not end within a few seconds.
  void say();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<CommQueue>> queues_;
};

}  // namespace gyre_torch
