// IdleMemory: memory of one kind that came from the driver and is not in use now. It is reused for
// requests of a similar size, without a call of the driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace gyre::exec {

struct IdlePiece {
  std::uint64_t memory = 0;  // its address; 0: there is none
  std::uint64_t bytes = 0;
};

// Any thread.
class IdleMemory {
 public:
  // The smallest that has so many bytes, unless it has more than twice as many.
  IdlePiece take(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = pieces_.end();
    for (auto one = pieces_.begin(); one != pieces_.end(); ++one)
      if (one->bytes >= bytes && one->bytes / 2 <= bytes &&
          (best == pieces_.end() || one->bytes < best->bytes))
        best = one;
    if (best == pieces_.end()) return {};
    const IdlePiece found = *best;
    pieces_.erase(best);
    return found;
  }
  void give(const IdlePiece& piece) {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(piece);
  }
  std::vector<IdlePiece> take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pieces_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<IdlePiece> pieces_;
};

}  // namespace gyre::exec
