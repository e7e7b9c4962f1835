// When the entries of a stream were done: told by the stream's callbacks, waited for by the thread
// that ends a step.
#pragma once

#include "lib/gradsync/gyre_objects.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gyre::gradsync {

class Completions {
 public:
  // Between steps: nothing is queued.
  void begin() {
    const std::lock_guard lock(mutex_);
    ended_ns_.clear();
    result_ = gyreSuccess;
  }
  // What is queued on the stream until now is its next entry.
  Status mark(gyreStream_t stream) {
    return checked(gyreStreamAddCallback(stream, &Completions::ended, this));
  }
  // Until entry `index` is done; the stream's first error so far. Each operation before it has a
  // deadline, so this ends.
  gyreResult_t wait(std::size_t index);
  bool is_done(std::size_t index) const {
    const std::lock_guard lock(mutex_);
    return ended_ns_.size() > index && result_ == gyreSuccess;
  }
  // When it was done, by SystemClock.
  std::int64_t ended_ns(std::size_t index);

 private:
  static void ended(gyreStream_t stream, gyreResult_t result, void* self);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> ended_ns_;
  gyreResult_t result_ = gyreSuccess;
};

}  // namespace gyre::gradsync
