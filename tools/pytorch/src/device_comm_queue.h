// DeviceCommQueue: the queue of a device. Nothing here waits for the device: what the caller waits
// for anyhow goes on its current stream, the rest on a stream of the queue's, after what is on the
// current one now. Copies go there too, so that no thread ends them.
#pragma once

#include "tools/pytorch/src/comm_queue.h"
#include "tools/pytorch/src/device_work.h"

#include <c10/core/Stream.h>
#include <deque>

namespace gyre_torch {

class DeviceCommQueue final : public CommQueue {
 public:
  DeviceCommQueue(std::unique_ptr<StoreCommunicator> communicator, c10::Device device);
  // Ends what is under way if it does not end by itself within a few seconds.
  ~DeviceCommQueue() override;
  DeviceCommQueue(const DeviceCommQueue&) = delete;
  DeviceCommQueue& operator=(const DeviceCommQueue&) = delete;

  StoreCommunicator& communicator() override { return *communicator_; }
  std::mutex& order() override { return order_; }
  WorkPointer carry_out(Operation operation) override;
  // Kernels of a communicator follow one another: there is one line.
  WorkPointer begin(Operation operation, Order order) override;
  void abort_at_end() override;

 private:
  WorkPointer put_on(const c10::Stream& stream, const c10::Stream& caller, Operation operation);
  void forget_ended();
  bool has_ended() override;

  const std::unique_ptr<StoreCommunicator> communicator_;
  const c10::Device device_;
  const c10::Stream own_;
  std::mutex order_;  // and of what follows
  // In the order in which they end; and until they are asked about, what has ended.
  std::deque<std::shared_ptr<EnqueuedCall>> under_way_;
};

}  // namespace gyre_torch
