// DeviceCommQueue: the queue of a device. Nothing here waits for the device. An operation that the
// caller waits for anyway goes on its current stream. Any other goes on a stream of the queue,
// behind the current one's present work. Copies go there too, so that no thread has to finish them.
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
