// Ticks: the processor's counter, for the times of frequent events. Where the counter is steady, a
// reading costs half of a clock's. The reader of the events turns ticks into nanoseconds. Counters
// of one machine agree; a TickScale is valid on this machine only.
#pragma once

#include "lib/base/clock.h"

#include <algorithm>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace gyre {

enum class TickSource : std::uint32_t { clock, counter };

// Whether the counter runs evenly, whatever the processor's speed and sleep.
inline TickSource tick_source() {
#if defined(__x86_64__)
  // Intel's manual, volume 3, "Invariant TSC"; AMD's has the same bit.
  constexpr unsigned leaf = 0x80000007, invariant_bit = 1U << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(leaf, &a, &b, &c, &d) != 0 && (d & invariant_bit) != 0)
    return TickSource::counter;
#endif
  return TickSource::clock;
}

inline std::uint64_t read_ticks(TickSource source) {
#if defined(__x86_64__)
  if (source == TickSource::counter) [[likely]]
    return __rdtsc();
#else
  (void)source;
#endif
  return static_cast<std::uint64_t>(SystemClock::read());
}

// The clock of the kernel's last timer tick: 1 to 10 ms old, at a third of the counter's price.
inline std::int64_t read_coarse_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * ns_per_s + now.tv_nsec;
}

// One instant in both.
struct TickPair {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0;
};

inline TickPair read_tick_pair(TickSource source) {
  TickPair best;
  std::uint64_t least = UINT64_MAX;
  // The narrowest of a few: an interruption between the readings would shift them.
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = read_ticks(source);
    const std::int64_t ns = SystemClock::read();
    const std::uint64_t width = read_ticks(source) - before;
    if (width < least) least = width, best = {before + width / 2, ns};
  }
  return best;
}

class TickScale {
 public:
  TickScale(TickPair from, TickPair to)
      : from_(from),
        ns_per_tick_(to.ticks > from.ticks && to.ns > from.ns
                         ? static_cast<double>(to.ns - from.ns) /
                               static_cast<double>(to.ticks - from.ticks)
                         : 1.0) {}
  std::int64_t to_ns(std::uint64_t ticks) const {
    // The ticks may be anybody's: what is beyond a lifetime from here is put at its end.
    constexpr double max_ns = 1LL << 61;
    const auto since = static_cast<double>(static_cast<std::int64_t>(ticks - from_.ticks));
    return from_.ns + static_cast<std::int64_t>(std::clamp(since * ns_per_tick_, -max_ns, max_ns));
  }

 private:
  TickPair from_;
  double ns_per_tick_;
};

}  // namespace gyre
