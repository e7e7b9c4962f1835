// Clock: the source of "now", so that tests can put a virtual clock under production code. Time is
// monotonic nanoseconds since an arbitrary start. Wall-clock time is for log stamps only.
#pragma once

#include <cstdint>
#include <ctime>

namespace gyre {

class Clock {
 public:
  virtual std::int64_t now_ns() const = 0;

 protected:
  ~Clock() = default;  // not virtual: nothing is to be done for one at the end of the process
};

inline constexpr std::int64_t ns_per_us = 1'000;
inline constexpr std::int64_t ns_per_ms = 1'000'000;
inline constexpr std::int64_t ns_per_s = 1'000'000'000;

// Not by <chrono>: every second source includes this, and <chrono> brings streams and locales.
class SystemClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return read(); }
  static std::int64_t read() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);  // fails for no clock that there is
    return now.tv_sec * ns_per_s + now.tv_nsec;
  }
};
inline constexpr SystemClock system_clock;

}  // namespace gyre
