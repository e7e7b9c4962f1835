#include "tools/pytorch/src/work.h"

#include "tools/pytorch/src/work_registry.h"

#include <c10/util/Exception.h>

namespace gyre_torch {

using c10::ivalue::Future;

HostWork::HostWork(int rank, Description description, std::vector<at::Tensor> inputs,
                   std::vector<at::Tensor> outputs, std::shared_ptr<int> source)
    : TorchWork(rank, description.type, description.title.c_str(),
                inputs.empty() ? outputs : inputs),
      description_(std::move(description)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      source_(std::move(source)) {}

void HostWork::end(std::exception_ptr why, std::function<void()> deliver,
                   std::function<void()> let_go) {
  std::shared_ptr<CompletionHook> hook;
  {
    const std::lock_guard lock(mutex_);
    if (!deliver && future_ == nullptr && recordFunctionEndCallback_ == nullptr)
      hook = complete(why);
  }
  if (completed_) {
    cv_.notify_all();
    return let_go();
  }
  CompletionThreads::shared().push(
      [this, why, deliver = std::move(deliver), let_go = std::move(let_go)]() mutable {
        try {
          if (deliver && why == nullptr) deliver();
        } catch (...) {
          why = std::current_exception();
        }
        deliver = nullptr;  // it holds tensors
        mark(why);
        let_go();
      });
}

// mutex_ is held, so that the hook hears of this before who waits for it can end something else.
std::shared_ptr<CompletionHook> HostWork::complete(std::exception_ptr why) {
  ended_ = CompletionHook::TorchClock::now();
  exception_ = why;
  completed_ = true;
  return notice_.end(why == nullptr, ended_);
}

void HostWork::end_here() { mark(nullptr); }

// All at once, so that a future that somebody asks for meanwhile is marked by one of the two.
void HostWork::mark(std::exception_ptr why) {
  c10::intrusive_ptr<Future> future;
  std::function<void()> tell_profiler;
  std::shared_ptr<CompletionHook> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = complete(why);
    future = future_;
    tell_profiler = std::exchange(recordFunctionEndCallback_, nullptr);
  }
  if (tell_profiler) tell_profiler();
  cv_.notify_all();
  const CompletionThreads::UserCodeScope telling;
  if (future == nullptr || !telling.allowed()) return;
  if (why != nullptr)
    future->setError(why);
  else
    future->markCompleted(at::IValue(outputs_));
}

bool HostWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool HostWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && exception_ == nullptr;
}

// Nobody ends a parent's work in a forked child, nor gives back its lock.
std::unique_lock<std::mutex> HostWork::lock_to_wait() const {
  if (birth_.is_this()) return std::unique_lock(mutex_);
  if (!completed_)
    C10_THROW_ERROR(DistBackendError,
                    c10::str("gyre: rank ", rank_, ": ", description_.text,
                             " belongs to the parent process, and was under way when this process "
                             "was forked from it: wait for it there"));
  return std::unique_lock(mutex_, std::defer_lock);
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock = lock_to_wait();
  const auto ended = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, ended);
  } else if (!cv_.wait_for(lock, timeout, ended)) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("gyre: rank ", rank_, ": wait() timed out after ", timeout.count(),
                             " ms for ", description_.text, ", which goes on"));
  }
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  if (lock.owns_lock()) lock.unlock();
  unregister(*this);
  return true;
}

c10::intrusive_ptr<Future> HostWork::getFuture() {
  const std::unique_lock lock = lock_to_wait();
  if (future_ != nullptr) return future_;
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  if (!completed_) return future_ = future;
  if (exception_ != nullptr)
    future->setError(exception_);
  else
    future->markCompleted(at::IValue(outputs_));
  return future_ = future;
}

float HostWork::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_, "gyre: ", description_.text, " has no duration yet: it is not over");
  return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

}  // namespace gyre_torch
