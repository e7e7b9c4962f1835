// HostWork: one operation on host memory, as PyTorch sees it. It ends when its last byte has
// arrived. Then threads that wait for it are woken, and the future is marked.
#pragma once

#include "tools/pytorch/src/completion_hook.h"
#include "tools/pytorch/src/completion_threads.h"
#include "tools/pytorch/src/forks.h"
#include "tools/pytorch/src/torch_versions.h"

#include <ATen/ATen.h>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre_torch {

// What an operation is, for its work, its errors and the profiler.
struct Description {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::string title;           // the profiler's
  std::string text;            // "all_reduce number 7 of 1024 float32"
  std::uint64_t sequence = 0;  // PyTorch's number: the first operation of its group has 1
  std::chrono::milliseconds timeout{};
};

class HostWork final : public TorchWork {
 public:
  // Both live as long as the operation; `outputs` are its result. The profiler shows the inputs,
  // or the outputs of an operation in place.
  HostWork(int rank, Description description, std::vector<at::Tensor> inputs,
           std::vector<at::Tensor> outputs, std::shared_ptr<int> source);

  // The operation is over; null: well. `deliver` runs before anybody hears of it. From any thread,
  // once. It returns at once: what takes longer is done on a thread of CompletionThreads. `let_go`
  // is called last: then nobody who ends the work touches it any more.
  void end(std::exception_ptr why, std::function<void()> deliver, std::function<void()> let_go);
  // Over, by the thread that made it: nobody can wait yet.
  void end_here();
  const Description& description() const { return description_; }
  // Before it can end.
  void set_notice(CompletionHook::CompletionNotice notice) { notice_ = std::move(notice); }

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override { return source_ != nullptr ? *source_ : -1; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return description_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return description_.timeout; }

 private:
  using Time = CompletionHook::Time;
  // What it returns is let go of without the lock.
  [[nodiscard]] std::shared_ptr<CompletionHook> complete(std::exception_ptr why);
  void mark(std::exception_ptr why);
  std::unique_lock<std::mutex> lock_to_wait() const;
  const BirthProcess birth_;
  const Description description_;
  const std::vector<at::Tensor> inputs_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // once somebody has asked; under mutex_
  const std::shared_ptr<int> source_;
  const Time begun_ = CompletionHook::TorchClock::now();
  Time ended_;
  CompletionHook::CompletionNotice notice_;  // of whoever ends it
};

}  // namespace gyre_torch
