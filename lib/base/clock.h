// Clock: the source of "now", so that tests can put a virtual clock under production code. Time is
// monotonic nanoseconds since an arbitrary start. Wall-clock time is for log stamps only.
#pragma once

#include <chrono>
#include <cstdint>

namespace gyre {

class Clock {
 public:
  virtual std::int64_t now_ns() const = 0;

 protected:
  ~Clock() = default;  // not virtual: nothing is to be done for one at the end of the process
};

class SystemClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return read(); }
  static std::int64_t read() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

inline constexpr std::int64_t ns_per_us = 1'000;
inline constexpr std::int64_t ns_per_ms = 1'000'000;
inline constexpr std::int64_t ns_per_s = 1'000'000'000;

}  // namespace gyre
