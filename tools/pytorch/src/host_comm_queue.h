// HostCommQueue: the queue of host memory. The caller's thread carries out operations that it waits
// for anyway. The others go on host streams of Gyre.
#pragma once

#include "tools/pytorch/src/comm_queue.h"
#include "tools/pytorch/src/completion_threads.h"

#include <list>
#include <unordered_set>

namespace gyre_torch {

class HostCommQueue final : public CommQueue {
 public:
  explicit HostCommQueue(std::unique_ptr<StoreCommunicator> communicator);
  // Ends what is under way if it does not end by itself within a few seconds.
  ~HostCommQueue() override;
  HostCommQueue(const HostCommQueue&) = delete;
  HostCommQueue& operator=(const HostCommQueue&) = delete;

  StoreCommunicator& communicator() override { return *communicator_; }
  std::mutex& order() override { return order_; }
  WorkPointer carry_out(Operation operation) override;
  // By Gyre's progress thread. What callers have begun is done first.
  WorkPointer begin(Operation operation, Order order) override;
  // In line, without a thread: a caller goes on with it, here or in any call that waits.
  WorkPointer begin_by_caller(Operation operation);
  void go_on();
  void abort_at_end() override;

 private:
  struct PendingOperation {
    c10::intrusive_ptr<HostWork> work;
    gyreStream_t stream = nullptr;  // its own; null: the queue's
  };
  using OperationIterator = std::list<PendingOperation>::iterator;
  // Those of them that have ended, until a caller's thread forgets them. Who ends the last may
  // outlive the queue.
  struct EndedOperations {
    std::mutex mutex;
    std::vector<OperationIterator> places;
  };
  struct EndCallback;
  // Of an operation for whose end Gyre has not taken the callback.
  struct RefusedCallback {
    gyreStream_t stream;
    std::unique_ptr<EndCallback> ending;
  };
  static void on_end(gyreStream_t stream, gyreResult_t status, void* user) noexcept;
  gyreStream_t make_stream(unsigned int flags);
  // Null: on a stream of its own.
  WorkPointer begin_on(gyreStream_t stream, Operation operation);
  gyreStream_t free_stream();
  void give_back(gyreStream_t stream);
  void forget_ended();
  static bool queue_callback(RefusedCallback& one);
  bool has_ended() override;
  c10::intrusive_ptr<HostWork> work_for(Operation& operation) const;

  const std::unique_ptr<StoreCommunicator> communicator_;
  std::mutex order_;                          // and of what follows
  std::unordered_set<gyreStream_t> streams_;  // all, and those that no operation has
  std::vector<gyreStream_t> free_;
  const gyreStream_t in_line_;
  gyreStream_t by_caller_ = nullptr;       // from its first use on
  std::list<PendingOperation> under_way_;  // and until it is forgotten, what has ended
  std::list<RefusedCallback> refused_;
  const std::shared_ptr<EndedOperations> ended_ = std::make_shared<EndedOperations>();
};

}  // namespace gyre_torch
