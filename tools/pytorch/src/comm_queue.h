// CommQueue: a communicator, its unfinished operations, and the two ways to carry one out. The
// queue of host memory is HostCommQueue, that of a device DeviceCommQueue.
#pragma once

#include "tools/pytorch/src/store_communicator.h"
#include "tools/pytorch/src/work.h"

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre_torch {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// One operation before it is carried out.
struct Operation {
  Description description;
  Tensors inputs, outputs;  // the user's; an output that is its own input stands in `outputs` alone
  // Gyre's calls for it, as one group. Results may land in memory of their own, which `deliver`
  // copies out. Both hold the tensors that they use.
  std::function<gyreResult_t(gyreComm_t, gyreStream_t)> call;
  std::function<void()> deliver;
  std::shared_ptr<int> source;  // where Gyre tells from whom a receive was
  at::Device device{at::kCPU};  // that of an operation without tensors
};
// All of them as one; their descriptions and sources are not.
Operation together(std::vector<Operation> parts);
// Where its tensors are. Throws if that is not one place.
at::Device device_of(const Operation& operation);

// Not negative.
std::chrono::milliseconds left_until(std::chrono::steady_clock::time_point until);

class CommQueue {
 public:
  virtual ~CommQueue() = default;
  virtual StoreCommunicator& communicator() = 0;
  // To be held from an operation's number to its begin, so that both are in one order.
  virtual std::mutex& order() = 0;
  // In the caller's order: by its thread, and over on return; or on its stream of the device.
  // Throws if it fails.
  virtual WorkPointer carry_out(Operation operation) = 0;
  // Beside what the caller does: after those before it, or side by side with them where the queue
  // can do that.
  enum class Order { in_line, side_by_side };
  virtual WorkPointer begin(Operation operation, Order order) = 0;
  // Waits for what is under way; false if `most` was not enough. Other threads may go on with it.
  bool drain(std::chrono::milliseconds most);
  // With a word to the user, as what is under way will not have happened.
  virtual void abort_at_end() = 0;
  // How long what is under way may take when its group or process goes; then it is aborted.
  static constexpr std::chrono::milliseconds patience{5000};

 protected:
  // Whether nothing is under way. Whoever has the order is inside an operation.
  virtual bool has_ended() = 0;
  // Gyre's calls, as one group.
  static gyreResult_t call(const Operation& operation, gyreComm_t comm, gyreStream_t stream);
  static void tell_of_abort(const StoreCommunicator& communicator, const std::string& doing);
};

}  // namespace gyre_torch
