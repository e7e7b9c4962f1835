// DeviceWork: one operation on a stream of a device, as PyTorch sees it. EnqueuedCall: the state
// that is kept for an operation while it is on its stream. Waiting for a DeviceWork makes the
// current stream wait. The host continues, unless the caller gives a time limit.
#pragma once

#include "tools/pytorch/src/comm_queue.h"
#include "tools/pytorch/src/torch_versions.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <mutex>
#include <optional>

namespace gyre_torch {

class EnqueuedCall {
 public:
  // `caller`: the stream that was current. Part of a graph, it tells nobody when it has ended.
  EnqueuedCall(const StoreCommunicator& communicator, const Description& description,
               c10::Stream caller, c10::Stream stream, bool is_captured);
  // All of it is on the stream. What `held` uses is kept until it has ended, or until the caller's
  // stream waits for it.
  void record_end(std::optional<Operation> held);

  const Description& description() const { return description_; }
  const c10::Stream& stream() const { return stream_; }
  bool is_captured() const { return is_captured_; }
  // Whether it is over, well or not; from then on `why` is settled. Any thread. Of an operation
  // that ended before its communicator broke, and was not asked about meanwhile, nobody knows
  // whether it ended well: it counts as failed.
  bool is_over();
  std::exception_ptr why() const;
  // Whether the device is done with it, too. Then it is over, and nothing is held.
  bool device_done();
  // What comes on the stream from now on waits for it.
  void block(const c10::Stream& stream);
  // Its communicator ends, and nobody hears of it any more.
  void give_up();

 private:
  bool look();
  void fail(gyreResult_t error);
  const StoreCommunicator* const communicator_;  // alive until this is over
  const Description description_;
  const c10::Stream caller_, stream_;
  const bool is_captured_;
  mutable std::mutex mutex_;  // of what follows
  c10::Event end_;
  std::optional<Operation> held_;
  bool over_ = false, left_ = false;
  std::exception_ptr why_;
};

class DeviceWork final : public TorchWork {
 public:
  DeviceWork(int rank, std::shared_ptr<EnqueuedCall> enqueued, Tensors inputs, Tensors outputs,
             std::shared_ptr<int> source);
  // All of it is on the stream, as far as a profiler of the host sees.
  void tell_profiler();

  bool isCompleted() override { return enqueued_->is_over(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_ != nullptr ? *source_ : -1; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() override { wait(kNoTimeout); }
  // With a timeout, by the host: it throws if the operation is not over by then.
  bool wait(std::chrono::milliseconds timeout) override;
  // The same, and for as long as it takes if there is none: Gyre's own deadline ends it.
  void wait_on_host(std::chrono::milliseconds timeout);
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return description().sequence; }
  std::chrono::milliseconds getTimeout() const override { return description().timeout; }

 private:
  const Description& description() const { return enqueued_->description(); }
  // false: the time was not enough.
  bool is_over_in(std::optional<std::chrono::milliseconds> most);
  const std::shared_ptr<EnqueuedCall> enqueued_;
  const Tensors outputs_;
  const std::shared_ptr<int> source_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // once somebody has asked; under mutex_
};

// Whether a graph is being made of what comes on the stream; then nobody may ask for events.
bool is_captured(const c10::Stream& stream);

}  // namespace gyre_torch
