// CommQueues: the queues of a process group. Each device that has tensors gets two, so that
// collectives do not wait for sends and receives, nor the reverse. Those of host memory exist from
// the beginning, those of a GPU from its first use.
#pragma once

#include "tools/pytorch/src/host_comm_queue.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre_torch {

// Gyre's number of a place for tensors. Throws if it is neither the CPU nor a CUDA device.
int number_of(at::Device device);

enum class Use { collectives, transfers };

class CommQueues {
 public:
  // Collective.
  CommQueues(c10::intrusive_ptr<c10d::Store> store, GroupMembership membership);

  // The queue for tensors there. The first time that a device is named, on any rank, all ranks have
  // to come, each with a device of its own or not: their first ones are together, and so on.
  std::shared_ptr<CommQueue> open(at::Device device, Use use);
  // For operations that callers begin side by side and go on with: the queue of collectives and a
  // few more, in turn. On one, the next would not begin before the last is over. The first one
  // shows ranks that call something else instead. Collective.
  std::shared_ptr<HostCommQueue> open_for_caller(std::size_t index);
  std::vector<std::shared_ptr<CommQueue>> all();
  // Who is inside a call keeps its queue until that is over.
  void leave();
  const GroupMembership& membership() const { return membership_; }
  // A forked child may do nothing with its parent's but forget them.
  bool are_of_this_process() const { return birth_.is_this(); }
  // Throws there.
  void check_process() const;

 private:
  struct CommQueuePair {
    std::shared_ptr<CommQueue> collectives, transfers;
  };
  std::shared_ptr<CommQueue> find(at::Device device, Use use);
  CommQueuePair join(at::Device device);

  const BirthProcess birth_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const GroupMembership membership_;
  std::mutex joining_;  // held while ranks are waited for
  std::size_t joined_ = 0;
  std::mutex mutex_;                    // of what follows, and never held while anything waits
  std::map<int, CommQueuePair> pairs_;  // by Gyre's number of the device
  std::vector<std::shared_ptr<HostCommQueue>> twins_;  // of that of collectives
  bool left_ = false;
};

}  // namespace gyre_torch
