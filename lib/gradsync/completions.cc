#include "lib/gradsync/completions.h"

#include "lib/base/clock.h"

namespace gyre::gradsync {

gyreResult_t Completions::wait(std::size_t index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ns_.size() > index; });
  return result_;
}

std::int64_t Completions::ended_ns(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return ended_ns_[index];
}

void Completions::ended(gyreStream_t, gyreResult_t result, void* self) {
  auto& all = *static_cast<Completions*>(self);
  const std::lock_guard lock(all.mutex_);
  all.ended_ns_.push_back(SystemClock::read());
  if (all.result_ == gyreSuccess) all.result_ = result;
  all.changed_.notify_all();  // under the lock: the waiter may destroy this once it has it
}

}  // namespace gyre::gradsync
