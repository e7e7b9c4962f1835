#include "tools/pytorch/src/comm_queues.h"

#include "tools/pytorch/src/device_comm_queue.h"
#include "tools/pytorch/src/shutdown_hook.h"

#include <c10/util/Exception.h>

namespace gyre_torch {

int number_of(at::Device device) {
  if (device.is_cpu()) return GYRE_DEVICE_HOST;
  TORCH_CHECK_VALUE(device.is_cuda() && device.has_index(), "gyre: ", device,
                    " is neither the CPU nor a CUDA device with its number");
  return device.index();
}

CommQueues::CommQueues(c10::intrusive_ptr<c10d::Store> store, GroupMembership membership)
    : store_(std::move(store)), membership_(std::move(membership)) {
  (void)open(at::kCPU, Use::collectives);
}

std::shared_ptr<CommQueue> CommQueues::open(at::Device device, Use use) {
  if (auto found = find(device, use)) return found;
  const std::lock_guard joining(joining_);
  if (auto found = find(device, use)) return found;
  CommQueuePair joined = join(device);
  {
    const std::lock_guard lock(mutex_);
    if (!left_) pairs_[number_of(device)] = std::move(joined);
  }
  return find(device, use);
}

// Before any lock, which a fork may have left held.
void CommQueues::check_process() const {
  TORCH_CHECK(birth_.is_this(), "gyre: the process group ", membership_.group,
              " belongs to the parent process: this process was forked from it, and has to make a ",
              "group of its own (destroy_process_group, then init_process_group)");
}

// Null: there is none yet.
std::shared_ptr<CommQueue> CommQueues::find(at::Device device, Use use) {
  check_process();
  const int number = number_of(device);
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!left_, "gyre: the process group ", membership_.group,
              " has been shut down (destroy_process_group): make a new one");
  const auto found = pairs_.find(number);
  if (found == pairs_.end()) return nullptr;
  return use == Use::collectives ? found->second.collectives : found->second.transfers;
}

CommQueues::CommQueuePair CommQueues::join(at::Device device) {
  const std::string key = joined_ == 0 ? "gyre" : c10::str("gyre/device/", joined_);
  ++joined_;
  auto [first, second] = StoreCommunicator::join_two(store_, key, membership_, number_of(device));
  const auto queue_of =
      [&](std::unique_ptr<StoreCommunicator> communicator) -> std::shared_ptr<CommQueue> {
    if (device.is_cpu()) return std::make_shared<HostCommQueue>(std::move(communicator));
    return std::make_shared<DeviceCommQueue>(std::move(communicator), device);
  };
  const CommQueuePair made{queue_of(std::move(first)), queue_of(std::move(second))};
  ShutdownHook::shared().enlist(made.collectives);
  ShutdownHook::shared().enlist(made.transfers);
  return made;
}

std::shared_ptr<HostCommQueue> CommQueues::open_for_caller(std::size_t index) {
  constexpr std::size_t most = 8;
  const std::size_t place = index % most;
  const std::shared_ptr<CommQueue> first = open(at::kCPU, Use::collectives);
  if (place == 0) return std::static_pointer_cast<HostCommQueue>(first);
  {
    const std::lock_guard lock(mutex_);
    if (place <= twins_.size()) return twins_[place - 1];
  }
  std::unique_ptr<StoreCommunicator> twin;
  {
    const std::lock_guard order(first->order());
    twin = first->communicator().twin();
  }
  auto queue = std::make_shared<HostCommQueue>(std::move(twin));
  ShutdownHook::shared().enlist(queue);
  const std::lock_guard lock(mutex_);
  if (!left_) twins_.push_back(queue);
  return queue;
}

std::vector<std::shared_ptr<CommQueue>> CommQueues::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<CommQueue>> found(twins_.begin(), twins_.end());
  for (const auto& [device, pair] : pairs_) {
    found.push_back(pair.collectives);
    found.push_back(pair.transfers);
  }
  return found;
}

void CommQueues::leave() {
  std::map<int, CommQueuePair> last;  // they end without the lock
  std::vector<std::shared_ptr<HostCommQueue>> last_twins;
  if (!birth_.is_this()) return;
  const std::lock_guard lock(mutex_);
  left_ = true;
  last.swap(pairs_);
  last_twins.swap(twins_);
}

}  // namespace gyre_torch
