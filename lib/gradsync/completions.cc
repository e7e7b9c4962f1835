#include "lib/gradsync/completions.h"

#include "lib/base/clock.h"

namespace gyre::gradsync {

Result<std::uint64_t> Completions::mark(gyreStream_t stream) {
  GYRE_TRY(checked(gyreStreamAddCallback(stream, &Completions::ended, this)));
  return marked_++;
}

gyreResult_t Completions::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return forgotten_ + ended_ns_.size() > number; });
  return result_;
}

bool Completions::is_done(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number < good_;
}

std::int64_t Completions::ended_ns(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (number < forgotten_ || number - forgotten_ >= ended_ns_.size()) return 0;
  return ended_ns_[number - forgotten_];
}

void Completions::forget_times() {
  const std::lock_guard lock(mutex_);
  forgotten_ += ended_ns_.size();
  ended_ns_.clear();
}

void Completions::ended(gyreStream_t, gyreResult_t result, void* self) {
  auto& all = *static_cast<Completions*>(self);
  const std::lock_guard lock(all.mutex_);
  all.ended_ns_.push_back(SystemClock::read());
  if (all.result_ == gyreSuccess) all.result_ = result;
  if (all.result_ == gyreSuccess) ++all.good_;
  all.changed_.notify_all();  // under the lock: the waiter may destroy this once it has it
}

}  // namespace gyre::gradsync
