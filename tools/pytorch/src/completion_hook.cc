#include "tools/pytorch/src/completion_hook.h"

#include "tools/pytorch/src/completion_threads.h"

#include <c10/util/Exception.h>
#include <thread>
#include <utility>

namespace gyre_torch {

CompletionHook::CompletionNotice& CompletionHook::CompletionNotice::operator=(
    CompletionNotice&& other) noexcept {
  (void)end(false, {});
  hook_ = std::move(other.hook_);
  type_ = other.type_;
  sequence_ = other.sequence_;
  begun_ = other.begun_;
  return *this;
}

std::shared_ptr<CompletionHook> CompletionHook::CompletionNotice::end(bool well, Time at) {
  std::shared_ptr<CompletionHook> hook = std::move(hook_);
  if (hook == nullptr) return hook;
  if (!well) {
    hook->forget(1);
    return hook;
  }
  const std::chrono::duration<float> active = at - begun_;
  auto info = std::make_shared<c10d::WorkInfo>(type_, sequence_, begun_, at, active);
  std::unique_lock lock(hook->mutex_);
  hook->ended_.push_back(std::move(info));
  hook->be_told(std::move(lock));
  return hook;
}

void CompletionHook::add(Hook hook) {
  auto kept = std::make_shared<const Hook>(std::move(hook));  // a refused one ends without our lock
  CompletionThreads::shared().be_ready();
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(hook_ == nullptr, "gyre: the process group has an on-completion hook already");
  hook_ = std::move(kept);
  has_hook_.store(true, std::memory_order_release);
}

CompletionHook::CompletionNotice CompletionHook::begin(c10d::OpType type, std::uint64_t sequence) {
  CompletionNotice made;
  if (!has_hook_.load(std::memory_order_acquire)) return made;
  const std::lock_guard lock(mutex_);
  ++pending_;
  made.hook_ = shared_from_this();
  made.type_ = type;
  made.sequence_ = sequence;
  made.begun_ = TorchClock::now();
  return made;
}

void CompletionHook::watch(CompletionNotice notice, std::function<std::optional<bool>()> look) {
  std::unique_lock lock(mutex_);
  watched_.push_back({std::move(notice), std::move(look)});
  be_told(std::move(lock));
}

void CompletionHook::wait_for_pending() {
  std::unique_lock lock(mutex_);
  told_.wait(lock, [this] { return pending_ == 0; });
}

// One thread at a time, so that the hook hears of one end after the other.
void CompletionHook::be_told(std::unique_lock<std::mutex> lock) {
  if (std::exchange(is_telling_, true)) return;
  lock.unlock();
  CompletionThreads::shared().push([self = shared_from_this()] { self->tell_all(); });
}

void CompletionHook::forget(std::size_t count) {
  const std::lock_guard lock(mutex_);
  pending_ -= count;
  if (pending_ == 0) told_.notify_all();
}

void CompletionHook::tell_all() {
  // Events of a driver wake nobody.
  constexpr std::chrono::milliseconds pause{1};
  while (true) {
    look_at_watched();
    Infos now;
    {
      const std::lock_guard lock(mutex_);
      now.swap(ended_);
      if (now.empty() && watched_.empty()) {
        is_telling_ = false;
        return;
      }
    }
    for (auto& info : now) call(std::move(info));
    if (now.empty())
      std::this_thread::sleep_for(pause);
    else
      forget(now.size());
  }
}

// Only this thread takes something away from the list.
void CompletionHook::look_at_watched() {
  std::list<WatchedOperation> over;  // they end without the lock
  std::unique_lock lock(mutex_);
  for (auto one = watched_.begin(); one != watched_.end();) {
    lock.unlock();
    const std::optional<bool> well = one->look();
    if (well) (void)one->notice.end(*well, TorchClock::now());
    lock.lock();
    const auto next = std::next(one);
    if (well) over.splice(over.end(), watched_, one);
    one = next;
  }
}

void CompletionHook::call(std::shared_ptr<c10d::WorkInfo> info) const {
  const CompletionThreads::UserCodeScope telling;
  if (!telling.allowed()) return;
  try {
    (*hook_)(std::move(info));
  } catch (const std::exception& error) {
    TORCH_WARN("gyre: the on-completion hook failed: ", error.what());
  }
}

}  // namespace gyre_torch
