// StallTimer: how long an operation has waited for the same peer without any progress.
#pragma once

#include "lib/base/clock.h"

#include <cstdint>

namespace gyre::comm {

class StallTimer {
 public:
  void moved() { since_ns_ = 0; }
  // Called before each sleep. True once in each period; `times` counts them.
  bool due(int peer, std::int64_t now_ns) {
    if (since_ns_ == 0 || peer != peer_) {
      peer_ = peer;
      since_ns_ = now_ns;
      times_ = 0;
      return false;
    }
    if (now_ns - since_ns_ < period_ns) return false;
    since_ns_ = now_ns;
    ++times_;
    return true;
  }
  int times() const { return times_; }

 private:
  // A look costs a system call for each link. A cut is told at a look, and so is a peer's leave,
  // which takes two: the time from the fault to the error is rounded up to them.
  static constexpr std::int64_t period_ns = 100 * ns_per_ms;
  std::int64_t since_ns_ = 0;
  int peer_ = -1;
  int times_ = 0;
};

}  // namespace gyre::comm
