#include "tools/pytorch/src/device_comm_queue.h"

#include "tools/pytorch/src/completion_threads.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <exception>

namespace gyre_torch {
namespace {

template <typename Stream>
gyreStream_t handle_of(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return static_cast<gyreStream_t>(stream.native_handle());
  } else {
    TORCH_CHECK(false, "gyre: this PyTorch does not tell the handle of ", stream,
                " (c10::Stream::native_handle): tensors on devices need a newer PyTorch");
  }
}

c10::impl::VirtualGuardImpl driver_of(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

DeviceCommQueue::DeviceCommQueue(std::unique_ptr<StoreCommunicator> communicator,
                                 c10::Device device)
    : communicator_(std::move(communicator)),
      device_(device),
      own_(driver_of(device).getStreamFromGlobalPool(device, /*isHighPriority=*/true)) {}

DeviceCommQueue::~DeviceCommQueue() {
  if (communicator_->is_of_this_process()) {
    // Once the process has shut down, what has not ended will not.
    if (!CompletionThreads::shared().is_silent() && !drain(patience)) {
      abort_at_end();
      drain(patience);
    }
    for (const auto& enqueued : under_way_) enqueued->give_up();
  }
  // A kernel that does not end will touch its tensors when it does.
  if (!under_way_.empty()) (void)new auto(std::move(under_way_));
}

WorkPointer DeviceCommQueue::carry_out(Operation operation) {
  const c10::Stream caller = driver_of(device_).getStream(device_);
  return put_on(caller, caller, std::move(operation));
}

WorkPointer DeviceCommQueue::begin(Operation operation, Order) {
  const c10::Stream caller = driver_of(device_).getStream(device_);
  c10::Event reached(device_.type());
  reached.record(caller);
  reached.block(own_);
  return put_on(own_, caller, std::move(operation));
}

// What was taken on the current stream, and used there alone, need not be held.
WorkPointer DeviceCommQueue::put_on(const c10::Stream& stream, const c10::Stream& caller,
                                    Operation operation) {
  const bool is_in_graph = is_captured(caller);
  if (!is_in_graph) forget_ended();
  auto enqueued = std::make_shared<EnqueuedCall>(*communicator_, operation.description, caller,
                                                 stream, is_in_graph);
  auto work =
      c10::make_intrusive<DeviceWork>(communicator_->membership().rank, enqueued, operation.inputs,
                                      operation.outputs, operation.source);
  CompletionHook& hook = *communicator_->membership().completions;
  CompletionHook::CompletionNotice notice;  // a graph tells nobody
  if (!is_in_graph) notice = hook.begin(operation.description.type, operation.description.sequence);
  std::exception_ptr failed;
  try {
    const c10::StreamGuard on(stream);
    communicator_->check(call(operation, communicator_->get(), handle_of(stream)),
                         enqueued->description().text);
    if (operation.deliver) operation.deliver();
  } catch (...) {
    failed = std::current_exception();
  }
  work->tell_profiler();
  // Also if it failed: what is on the stream already uses its memory.
  enqueued->record_end(stream == caller ? std::nullopt : std::optional(std::move(operation)));
  if (!is_in_graph) under_way_.push_back(enqueued);
  if (failed != nullptr) std::rethrow_exception(failed);
  if (notice)
    hook.watch(std::move(notice), [enqueued = std::move(enqueued)]() -> std::optional<bool> {
      if (!enqueued->is_over()) return std::nullopt;
      return enqueued->why() == nullptr;
    });
  return work;
}

void DeviceCommQueue::forget_ended() {
  while (!under_way_.empty() && under_way_.front()->device_done()) under_way_.pop_front();
}

bool DeviceCommQueue::has_ended() {
  const std::unique_lock lock(order_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  forget_ended();
  return under_way_.empty();
}

void DeviceCommQueue::abort_at_end() {
  std::string doing = "an operation";
  if (const std::unique_lock lock(order_, std::try_to_lock);
      lock.owns_lock() && !under_way_.empty())
    doing = under_way_.front()->description().text;
  tell_of_abort(*communicator_, doing);
  communicator_->abort();
}

}  // namespace gyre_torch
