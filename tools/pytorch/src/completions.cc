#include "tools/pytorch/src/completions.h"

namespace gyre_torch {

std::shared_ptr<Completions> Completions::shared() {
  static std::mutex mutex;
  static std::weak_ptr<Completions> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Completions> found = current.lock();
  if (found == nullptr) current = found = std::make_shared<Completions>();
  return found;
}

Completions::~Completions() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  pushed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Completions::push(std::function<void()> end) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(end));
    if (queue_.size() > idle_) threads_.emplace_back([this] { serve(); });
  }
  pushed_.notify_one();
}

void Completions::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    pushed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    const std::function<void()> end = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    end();
    lock.lock();
  }
}

}  // namespace gyre_torch
