// Completions: when the entries of a stream were done. The stream's callbacks report them; the
// thread that ends a step waits for them.
#pragma once

#include "lib/gradsync/gyre_objects.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gyre::gradsync {

class Completions {
 public:
  // What is queued on the stream until now: its number, from 0. One stream for each Completions.
  Result<std::uint64_t> mark(gyreStream_t stream);
  // Until it is done; the stream's first error so far. Each operation before it has a deadline, so
  // this ends.
  gyreResult_t wait(std::uint64_t number);
  // Without an error of it or one before.
  bool is_done(std::uint64_t number) const;
  // When it was done, by SystemClock; 0: it is forgotten, or not done.
  std::int64_t ended_ns(std::uint64_t number) const;
  // Nobody will ask when those up to now were done.
  void forget_times();

 private:
  static void ended(gyreStream_t stream, gyreResult_t result, void* self);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t marked_ = 0;
  std::uint64_t good_ = 0;  // ended before the stream's first error
  std::uint64_t forgotten_ = 0;
  std::vector<std::int64_t> ended_ns_;  // of those that are not
  gyreResult_t result_ = gyreSuccess;
};

}  // namespace gyre::gradsync
