// Wait: the one place where calls wait for peers. A thread advances everything it has. When a whole
// turn moved nothing, it calls `pause`, which spins, then yields, then sleeps at most 1 ms at a
// time on what the transports armed. So a lost wake-up costs time and never causes a hang.
//
//   Blocked   what one Launch waits for, and for whom: for errors and for tools
//   WaitSet   the futex words and descriptors that end one sleep
#pragma once

#include "lib/base/clock.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace gyre {

enum class BlockedOn : std::uint8_t {
  nothing,
  entered,     // the peer has not begun this call (no grant yet)
  connection,  // the link to the peer is being opened
  credit,      // the peer has not freed a slot
  data,        // the peer has not sent
  drain,       // the peer still reads or writes our buffer
  kernel,
  stream,
};
std::string_view blocked_on_name(BlockedOn what);  // "the peer to begin this call"
std::string_view blocked_on_word(BlockedOn what);  // "entered"
inline constexpr int blocked_on_count = 8;

struct Blocked {
  BlockedOn what = BlockedOn::nothing;
  int peer = -1;
  int channel = 0;
  std::uint32_t chunk = 0;
};

class WaitSet {
 public:
  // Wakes when *word is no longer `seen`. At most 128 words count; the 1 ms bound covers the rest.
  void add_futex(std::atomic<std::uint32_t>* word, std::uint32_t seen);
  void add_descriptor(int descriptor, short events);
  void clear();
  void sleep(std::int64_t max_ns);

 private:
  struct Word {
    std::atomic<std::uint32_t>* word;
    std::uint32_t seen;
  };
  std::vector<Word> words_;
  std::vector<pollfd> descriptors_;
};

// Wakes every sleeper on `word`, in any process; the caller changed the word before.
void wake_futex(std::atomic<std::uint32_t>* word);

// Lets the other threads of this core have it for the moment that a poll takes; on x86 it also
// keeps the loop from being misread as a race for memory.
inline void relax_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on most; this waits for the pipeline
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

struct WaitPolicy {
  int spins = 2000;  // polls with a pause instruction
  // Then polls with sched_yield, then sleep. With more ranks than processors the next rank runs at
  // once: 8 ranks on 2 cores take 9 us for 8 bytes with 200 yields, 60 us with 4.
  int yields = 200;
  std::int64_t max_sleep_ns = ns_per_ms;
};
// Spinning only helps while each waiting rank has a processor of its own.
WaitPolicy wait_policy(int ranks_on_this_host, int their_processors, std::int64_t spin_setting);
// The processors that this thread may run on, one bit each, as hexadecimal words.
std::string processor_mask();
// With whom this process takes turns at a yield: equal where it hands the processor on. Linux's
// autogroup shares processors between sessions first, so that a yield stays within one. Empty: with
// all.
std::string yield_group();
// How many processors the masks name together. What is no mask counts for nothing.
int count_processors(const std::vector<std::string_view>& masks);

// How to look for what rings no bell, such as kernels: one thread alone, so it does not spin.
inline constexpr WaitPolicy without_bell = {.spins = 0, .yields = 16};

class Wait {
 public:
  enum class Outcome { again, deadline };

  // The limit counts from the first look at the clock, so that a wait that ends while spinning
  // costs no clock reading.
  Wait(const Clock& clock, WaitPolicy policy, std::int64_t limit_ns)
      : clock_(clock), policy_(policy), limit_ns_(limit_ns) {}

  void set_limit(std::int64_t limit_ns) { limit_ns_ = limit_ns; }

  // Something moved: spin again before sleeping.
  void progressed() { turns_ = 0, idle_since_ns_ = 0; }

  // After a turn without progress. `arm(set)` announces the sleepers and returns false if something
  // is ready after all; `disarm()` takes the announcement back. Both are called only before a
  // sleep.
  template <typename Arm, typename Disarm>
  Outcome pause(Arm&& arm, Disarm&& disarm) {
    if (++turns_ <= policy_.spins) {
      relax_processor();
      return turns_ % deadline_check_turns == 0 ? check_deadline() : Outcome::again;
    }
    if (turns_ <= policy_.spins + policy_.yields && looked_ns_ >= crowded_until_ns_) return yield();
    set_.clear();
    if (arm(set_)) set_.sleep(sleep_ns());
    disarm();
    return check_deadline();
  }

  // Whether tools should be told of the wait now: not in its first turns, which are the whole of
  // most waits, then now and then while it spins, and at every turn that costs more than telling.
  bool is_long() const {
    if (turns_ <= policy_.spins) return turns_ % told_spins == 0 && turns_ > 0;
    return turns_ >= told_spins || turns_ > policy_.spins + told_yields ||
           looked_ns_ - idle_since_ns_ >= told_ns;
  }

  // Since the first look at the clock.
  std::int64_t waited_ns() const { return started_ ? clock_.now_ns() - start_ns_ : 0; }

 private:
  static constexpr int deadline_check_turns = 1024;
  static constexpr int told_spins = 200;
  static constexpr int told_yields = 20;              // each takes as long as many spins
  static constexpr std::int64_t told_ns = ns_per_ms;  // or much longer, where others run meanwhile
  // Where others compute, a yield takes as long as their turn on the processor, and the next one
  // again; who sleeps is woken before that is over. So a long yield is the last one for a time.
  static constexpr std::int64_t long_yield_ns = ns_per_ms;
  static constexpr std::int64_t yield_rarity = 100;  // of the time, long yields take 1 %
  Outcome yield();
  std::int64_t sleep_ns() const;
  Outcome check_deadline();

  const Clock& clock_;
  const WaitPolicy policy_;
  std::int64_t limit_ns_;
  std::int64_t start_ns_ = 0;
  bool started_ = false;
  int turns_ = 0;
  std::int64_t looked_ns_ = 0;      // the last look at the clock
  std::int64_t idle_since_ns_ = 0;  // the first one since something moved; 0: none yet
  std::int64_t crowded_until_ns_ = 0;
  WaitSet set_;
};

// Calls `look` until it returns true, for what nobody rings a bell for; sleeps in between. False:
// it did not within the limit.
template <typename Look>
bool look_until(const Clock& clock, const WaitPolicy& policy, std::int64_t limit_ns, Look&& look) {
  const auto arm = [](WaitSet&) { return true; };
  const auto disarm = [] {};
  Wait wait(clock, policy, limit_ns);
  while (!look())
    if (wait.pause(arm, disarm) == Wait::Outcome::deadline) return look();
  return true;
}

}  // namespace gyre
