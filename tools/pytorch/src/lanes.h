// Lanes: those of a process group, two for each place where tensors are, so that collectives and
// sends and receives do not wait for each other: in host memory from the beginning, on a device
// from its first use on.
#pragma once

#include "tools/pytorch/src/host_lane.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre_torch {

// Gyre's number of a place for tensors. Throws if it is neither the CPU nor a CUDA device.
int number_of(at::Device device);

enum class Use { collectives, transfers };

class Lanes {
 public:
  // Collective.
  Lanes(c10::intrusive_ptr<c10d::Store> store, Membership membership);

  // The lane for tensors there. The first time that a device is named, on any rank, all ranks have
  // to come, each with a device of its own or not: their first ones are together, and so on.
  std::shared_ptr<Lane> open(at::Device device, Use use);
  // Lanes of host memory that callers drive, a few, which operations that are begun side by side
  // take in turn: on one, the next would not begin before the last is over. Collective.
  std::shared_ptr<HostLane> open_driven(std::size_t index);
  std::vector<std::shared_ptr<Lane>> all();
  // Who is inside a call keeps its lane until that is over.
  void leave();
  const Membership& membership() const { return membership_; }

 private:
  struct Pair {
    std::shared_ptr<Lane> collectives, transfers;
  };
  std::shared_ptr<Lane> find(at::Device device, Use use);
  Pair join(at::Device device);

  const c10::intrusive_ptr<c10d::Store> store_;
  const Membership membership_;
  std::mutex joining_;  // held while ranks are waited for
  std::size_t joined_ = 0;
  std::mutex mutex_;           // of what follows, and never held while anything waits
  std::map<int, Pair> pairs_;  // by Gyre's number of the device
  std::vector<std::shared_ptr<HostLane>> driven_;
  bool left_ = false;
};

}  // namespace gyre_torch
