#include "tools/pytorch/src/device_work.h"

#include "tools/pytorch/src/work_registry.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <thread>

namespace gyre_torch {

using c10::ivalue::Future;

namespace {

c10::Stream current_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Older PyTorch has no such question: there no graph can have been meant.
template <typename Stream>
bool asks_for_capture(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); })
    return stream.is_capturing();
  else
    return false;
}

}  // namespace

bool is_captured(const c10::Stream& stream) { return asks_for_capture(stream); }

EnqueuedCall::EnqueuedCall(const StoreCommunicator& communicator, const Description& description,
                           c10::Stream caller, c10::Stream stream, bool is_captured)
    : communicator_(&communicator),
      description_(description),
      caller_(caller),
      stream_(stream),
      is_captured_(is_captured),
      end_(stream.device_type()) {}

void EnqueuedCall::record_end(std::optional<Operation> held) {
  const std::lock_guard lock(mutex_);
  end_.record(stream_);
  held_ = std::move(held);
  over_ = left_ = is_captured_;
}

// First the device, then Gyre: what a kernel says when it gives up stands there when it has ended.
bool EnqueuedCall::look() {
  try {
    if (!left_) left_ = end_.query();
  } catch (...) {  // the driver's: nothing runs there any more
    if (!over_) why_ = std::current_exception();
    left_ = over_ = true;
  }
  if (over_) return true;
  gyreResult_t error = gyreSuccess;
  if (gyreCommGetAsyncError(communicator_->get(), &error) != gyreSuccess) error = gyreAborted;
  if (error == gyreInProgress) return false;
  if (error != gyreSuccess) fail(error);
  return over_ = left_ || error != gyreSuccess;
}

bool EnqueuedCall::is_over() {
  const std::lock_guard lock(mutex_);
  return over_ || look();
}

std::exception_ptr EnqueuedCall::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

bool EnqueuedCall::device_done() {
  std::optional<Operation> held;  // it ends without the lock
  const std::lock_guard lock(mutex_);
  if (!left_ || !over_) look();
  if (left_ && over_) held.swap(held_);
  return left_ && over_;
}

void EnqueuedCall::block(const c10::Stream& stream) {
  std::optional<Operation> held;
  const std::lock_guard lock(mutex_);
  if (is_captured_ || !left_) end_.block(stream);
  // What was taken on this stream may be given back, in its order.
  if (stream == caller_) held.swap(held_);
}

void EnqueuedCall::give_up() {
  const std::lock_guard lock(mutex_);
  if (!over_) fail(gyreAborted);
  over_ = true;
}

void EnqueuedCall::fail(gyreResult_t error) {
  try {
    communicator_->fail(error, description_.text);
  } catch (...) {
    why_ = std::current_exception();
  }
  communicator_->membership().hooks->call_elsewhere([] {});
}

DeviceWork::DeviceWork(int rank, std::shared_ptr<EnqueuedCall> enqueued, Tensors inputs,
                       Tensors outputs, std::shared_ptr<int> source)
    : TorchWork(rank, enqueued->description().type, enqueued->description().title.c_str(),
                inputs.empty() ? outputs : inputs),
      enqueued_(std::move(enqueued)),
      outputs_(std::move(outputs)),
      source_(std::move(source)) {}

void DeviceWork::tell_profiler() {
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool DeviceWork::isSuccess() const { return enqueued_->is_over() && enqueued_->why() == nullptr; }

std::exception_ptr DeviceWork::exception() const {
  return enqueued_->is_over() ? enqueued_->why() : nullptr;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  const c10::Stream current = current_stream(enqueued_->stream().device());
  const bool is_in_graph = is_captured(current);
  if (timeout != kNoTimeout && !is_in_graph && !is_over_in(timeout))
    C10_THROW_ERROR(DistBackendError,
                    c10::str("gyre: rank ", rank_, ": wait() timed out after ", timeout.count(),
                             " ms for ", description().text, ", which goes on"));
  enqueued_->block(current);
  if (!is_in_graph && enqueued_->is_over() && enqueued_->why() != nullptr)
    std::rethrow_exception(enqueued_->why());
  unregister(*this);
  return true;
}

void DeviceWork::wait_on_host(std::chrono::milliseconds timeout) {
  if (timeout <= kNoTimeout && !enqueued_->is_captured()) (void)is_over_in(std::nullopt);
  wait(std::max(timeout, kNoTimeout));
}

bool DeviceWork::is_over_in(std::optional<std::chrono::milliseconds> most) {
  const auto begun = std::chrono::steady_clock::now();
  // Events of the driver wake nobody.
  for (auto pause = std::chrono::microseconds(10); !enqueued_->is_over();
       pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
    if (most && std::chrono::steady_clock::now() - begun >= *most) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

// It is marked at once, on the stream of the operation: who waits for it, or is called back, is
// put in order behind it.
c10::intrusive_ptr<Future> DeviceWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                        std::vector<c10::Device>{enqueued_->stream().device()});
  const bool has_failed = !enqueued_->is_captured() && enqueued_->is_over() && enqueued_->why();
  if (has_failed) {
    future_->setError(enqueued_->why());
    return future_;
  }
  const c10::StreamGuard on(enqueued_->stream());
  future_->markCompleted(at::IValue(outputs_));
  return future_;
}

}  // namespace gyre_torch
