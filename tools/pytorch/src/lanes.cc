#include "tools/pytorch/src/lanes.h"

#include "tools/pytorch/src/device_lane.h"
#include "tools/pytorch/src/farewell.h"

#include <c10/util/Exception.h>

namespace gyre_torch {

int number_of(at::Device device) {
  if (device.is_cpu()) return GYRE_DEVICE_HOST;
  TORCH_CHECK_VALUE(device.is_cuda() && device.has_index(), "gyre: ", device,
                    " is neither the CPU nor a CUDA device with its number");
  return device.index();
}

Lanes::Lanes(c10::intrusive_ptr<c10d::Store> store, Membership membership)
    : store_(std::move(store)), membership_(std::move(membership)) {
  (void)open(at::kCPU, Use::collectives);
}

std::shared_ptr<Lane> Lanes::open(at::Device device, Use use) {
  if (auto found = find(device, use)) return found;
  const std::lock_guard joining(joining_);
  if (auto found = find(device, use)) return found;
  Pair joined = join(device);
  {
    const std::lock_guard lock(mutex_);
    if (!left_) pairs_[number_of(device)] = std::move(joined);
  }
  return find(device, use);
}

// Null: there is none yet.
std::shared_ptr<Lane> Lanes::find(at::Device device, Use use) {
  const int number = number_of(device);
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!left_, "gyre: the process group ", membership_.group,
              " has been shut down (destroy_process_group): make a new one");
  const auto found = pairs_.find(number);
  if (found == pairs_.end()) return nullptr;
  return use == Use::collectives ? found->second.collectives : found->second.transfers;
}

Lanes::Pair Lanes::join(at::Device device) {
  const std::string key = joined_ == 0 ? "gyre" : c10::str("gyre/device/", joined_);
  ++joined_;
  auto [first, second] = Communicator::join_two(store_, key, membership_, number_of(device));
  const auto lane_of = [&](std::unique_ptr<Communicator> communicator) -> std::shared_ptr<Lane> {
    if (device.is_cpu()) return std::make_shared<HostLane>(std::move(communicator));
    return std::make_shared<DeviceLane>(std::move(communicator), device);
  };
  const Pair made{lane_of(std::move(first)), lane_of(std::move(second))};
  Farewell::shared().enlist(made.collectives);
  Farewell::shared().enlist(made.transfers);
  return made;
}

std::shared_ptr<HostLane> Lanes::open_driven(std::size_t index) {
  constexpr std::size_t most = 8;
  const std::size_t place = index % most;
  {
    const std::lock_guard lock(mutex_);
    if (place < driven_.size()) return driven_[place];
  }
  const std::shared_ptr<Lane> first = open(at::kCPU, Use::collectives);
  std::unique_ptr<Communicator> twin;
  {
    const std::lock_guard order(first->order());
    twin = first->communicator().twin();
  }
  auto lane = std::make_shared<HostLane>(std::move(twin), HostLane::Drive::callers);
  Farewell::shared().enlist(lane);
  const std::lock_guard lock(mutex_);
  if (!left_) driven_.push_back(lane);
  return lane;
}

std::vector<std::shared_ptr<Lane>> Lanes::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lane>> found(driven_.begin(), driven_.end());
  for (const auto& [device, pair] : pairs_) {
    found.push_back(pair.collectives);
    found.push_back(pair.transfers);
  }
  return found;
}

void Lanes::leave() {
  std::map<int, Pair> last;  // they end without the lock
  std::vector<std::shared_ptr<HostLane>> last_driven;
  const std::lock_guard lock(mutex_);
  left_ = true;
  last.swap(pairs_);
  last_driven.swap(driven_);
}

}  // namespace gyre_torch
