// DriverSeat: whose turn it is to advance a stream, or the queue of a communicator. Several threads
// want it again and again: the progress thread, and callers that wait. The last holder first leaves
// the seat to threads that were refused meanwhile. Otherwise a thread that sleeps with the seat and
// takes it again at once would starve a thread that sleeps between its attempts.
#pragma once

#include "lib/base/clock.h"

#include <atomic>
#include <cstdint>

namespace gyre::comm {

class DriverSeat {
 public:
  enum class TakeResult { no, kept, newly };

  // `who` is any address that stands for the thread's turns. One that `comes_again`, within a sleep
  // of Wait, is waited for.
  TakeResult take(const void* who, bool comes_again) {
    // Pairs with the release in leave: what the driver before did has been done.
    if (holder_.load(std::memory_order_relaxed) == who) return TakeResult::kept;
    const std::int64_t wanted_until_ns = wanted_until_ns_.load(std::memory_order_relaxed);
    if (wanted_until_ns != 0 && last_.load(std::memory_order_relaxed) == who) [[unlikely]]
      if (SystemClock::read() < wanted_until_ns) return TakeResult::no;
    const void* nobody = nullptr;
    if (!holder_.compare_exchange_strong(nobody, who, std::memory_order_acquire)) {
      if (comes_again)
        wanted_until_ns_.store(SystemClock::read() + patience_ns, std::memory_order_relaxed);
      return TakeResult::no;
    }
    if (wanted_until_ns != 0) wanted_until_ns_.store(0, std::memory_order_relaxed);
    last_.store(who, std::memory_order_relaxed);
    return TakeResult::newly;
  }
  // Nothing if the seat is another's: who has left may leave again.
  void leave(const void* who) {
    holder_.compare_exchange_strong(who, nullptr, std::memory_order_release,
                                    std::memory_order_relaxed);
  }

 private:
  // Twice the longest sleep.
  static constexpr std::int64_t patience_ns = 2 * ns_per_ms;

  std::atomic<const void*> holder_{nullptr}, last_{nullptr};
  std::atomic<std::int64_t> wanted_until_ns_{0};  // 0: nobody was refused since
};

}  // namespace gyre::comm
