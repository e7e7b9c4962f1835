#include "tools/pytorch/src/completion_threads.h"

#include "tools/pytorch/src/forks.h"

#include <c10/util/Exception.h>
#include <thread>

namespace gyre_torch {

CompletionThreads& CompletionThreads::shared() { return of_this_process<CompletionThreads>(); }

// What the system said if it refused one; else empty.
std::string CompletionThreads::start_thread() {
  try {
    std::thread([this] { serve(); }).detach();
  } catch (const std::exception& error) {
    return error.what();
  }
  ++idle_;
  return {};
}

void CompletionThreads::be_ready() {
  if (ready_.load(std::memory_order_acquire)) return;  // pairs with the release below
  const std::lock_guard lock(mutex_);
  if (ready_.load(std::memory_order_relaxed)) return;
  const std::string refusal = start_thread();
  TORCH_CHECK(refusal.empty(), "gyre: no thread could be started to finish works: ", refusal,
              ": see the limits of processes (ulimit -u) and of memory (ulimit -v)");
  ready_.store(true, std::memory_order_release);
}

void CompletionThreads::push(std::function<void()> end) {
  std::string refusal;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(end));
    if (queue_.size() > idle_) refusal = start_thread();
  }
  pushed_.notify_one();
  if (!refusal.empty()) {
    TORCH_WARN_ONCE("gyre: no more threads could be started to finish works: ", refusal,
                    ": works wait until callbacks of others have returned");
  }
}

CompletionThreads::UserCodeScope::UserCodeScope() : all_(shared()) {
  const std::lock_guard lock(all_.mutex_);
  allowed_ = !all_.is_silent();
  if (allowed_) ++all_.telling_;
}

CompletionThreads::UserCodeScope::~UserCodeScope() {
  const std::lock_guard lock(all_.mutex_);
  if (allowed_ && --all_.telling_ == 0) all_.told_.notify_all();
}

void CompletionThreads::fall_silent(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  silent_.store(true, std::memory_order_release);  // pairs with the acquire in is_silent
  told_.wait_for(lock, most, [this] { return telling_ == 0; });
}

// False: there are enough without this thread, which has waited in vain.
bool CompletionThreads::wait_for_more(std::unique_lock<std::mutex>& lock) {
  const auto is_wanted = [this] { return !queue_.empty(); };
  while (idle_ > max_idle) {
    if (pushed_.wait_for(lock, idle_for, is_wanted)) return true;
    if (idle_ > max_idle) return false;
  }
  pushed_.wait(lock, is_wanted);
  return true;
}

void CompletionThreads::serve() {
  std::unique_lock lock(mutex_);
  for (;; ++idle_) {
    const bool has_more = wait_for_more(lock);
    --idle_;
    if (!has_more) return;
    std::function<void()> end = std::move(queue_.front());
    queue_.pop_front();
    if (queue_.size() > idle_) (void)start_thread();  // one was refused before
    lock.unlock();
    try {
      end();
    } catch (const std::exception& error) {
      TORCH_WARN("gyre: a callback of a future failed: ", error.what());
    }
    end = nullptr;
    lock.lock();
  }
}

}  // namespace gyre_torch
