#include "lib/base/wait.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <climits>
#include <ctime>
#include <fstream>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {
namespace {

timespec to_timespec(std::int64_t ns) {
  return {.tv_sec = ns / ns_per_s, .tv_nsec = ns % ns_per_s};
}

void sleep_on_one(std::atomic<std::uint32_t>* word, std::uint32_t seen, std::int64_t ns) {
  const timespec limit = to_timespec(ns);
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace

std::string_view blocked_on_name(BlockedOn what) {
  constexpr std::string_view names[] = {
      "nothing", "the peer to begin this call",        "a connection", "a free slot",
      "data",    "the peer to finish with our buffer", "a kernel",     "a stream"};
  return names[static_cast<int>(what)];
}

std::string_view blocked_on_word(BlockedOn what) {
  constexpr std::string_view words[blocked_on_count] = {
      "nothing", "entered", "connection", "credit", "data", "drain", "kernel", "stream"};
  return words[static_cast<int>(what)];
}

void WaitSet::add_futex(std::atomic<std::uint32_t>* word, std::uint32_t seen) {
  for (const Word& known : words_)
    if (known.word == word) return;
  words_.push_back({word, seen});
}

void WaitSet::add_descriptor(int descriptor, short events) {
  for (pollfd& known : descriptors_) {
    if (known.fd != descriptor) continue;
    known.events = static_cast<short>(known.events | events);
    return;
  }
  descriptors_.push_back({descriptor, events, 0});
}

void WaitSet::clear() {
  words_.clear();
  descriptors_.clear();
}

void WaitSet::sleep(std::int64_t max_ns) {
  const auto has_changed = [](const Word& one) { return one.word->load() != one.seen; };
  if (std::ranges::any_of(words_, has_changed)) return;
  // Both kinds at once cannot be slept on; descriptors win with a shorter nap.
  if (!descriptors_.empty()) {
    const timespec limit = to_timespec(words_.empty() ? max_ns : std::min(max_ns, ns_per_ms / 5));
    ppoll(descriptors_.data(), descriptors_.size(), &limit, nullptr);
    return;
  }
  if (words_.empty()) {
    const timespec limit = to_timespec(max_ns);
    nanosleep(&limit, nullptr);
    return;
  }
  if (words_.size() == 1) return sleep_on_one(words_[0].word, words_[0].seen, max_ns);
#ifdef SYS_futex_waitv
  futex_waitv waiters[FUTEX_WAITV_MAX] = {};
  const std::size_t count = std::min<std::size_t>(words_.size(), FUTEX_WAITV_MAX);
  for (std::size_t i = 0; i < count; ++i)
    waiters[i] = {.val = words_[i].seen,
                  .uaddr = reinterpret_cast<std::uintptr_t>(words_[i].word),
                  .flags = FUTEX_32,
                  .__reserved = 0};
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const std::int64_t end_ns = until.tv_sec * ns_per_s + until.tv_nsec + max_ns;
  until = to_timespec(end_ns);
  if (syscall(SYS_futex_waitv, waiters, count, 0, &until, CLOCK_MONOTONIC) >= 0 || errno != ENOSYS)
    return;
#endif
  sleep_on_one(words_[0].word, words_[0].seen, std::min(max_ns, ns_per_ms / 5));
}

void wake_futex(std::atomic<std::uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

WaitPolicy wait_policy(int ranks_on_this_host, int their_processors, std::int64_t spin_setting) {
  WaitPolicy policy;
  if (ranks_on_this_host > their_processors) policy.spins = 0;
  if (spin_setting >= 0)
    policy.spins = static_cast<int>(std::min<std::int64_t>(spin_setting, INT_MAX / 2));
  return policy;
}

std::string processor_mask() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::string mask;
  for (int word = 0; word < CPU_SETSIZE / 64; ++word) {
    std::uint64_t bits = 0;
    for (int bit = 0; bit < 64; ++bit)
      bits |= static_cast<std::uint64_t>(CPU_ISSET(word * 64 + bit, &allowed) != 0) << bit;
    mask += fmt::format("{:016x}", bits);
  }
  mask.erase(mask.find_last_not_of('0') / 16 * 16 + 16);
  return mask;
}

std::string yield_group() {
  const auto first_word = [](const char* path) {
    std::string word;
    std::ifstream(path) >> word;
    return word;
  };
  if (first_word("/proc/sys/kernel/sched_autogroup_enabled") != "1") return {};
  return first_word("/proc/self/autogroup");  // "/autogroup-123 nice 0"
}

int count_processors(const std::vector<std::string_view>& masks) {
  std::vector<std::uint64_t> all;
  for (std::string_view mask : masks) {
    for (std::size_t word = 0; word * 16 + 16 <= mask.size(); ++word) {
      std::uint64_t bits = 0;
      const char* begin = mask.data() + word * 16;
      if (std::from_chars(begin, begin + 16, bits, 16).ptr != begin + 16) break;
      if (all.size() <= word) all.resize(word + 1);
      all[word] |= bits;
    }
  }
  int count = 0;
  for (const std::uint64_t word : all) count += std::popcount(word);
  return count;
}

Wait::Outcome Wait::yield() {
  const std::int64_t begun_ns = clock_.now_ns();
  sched_yield();
  const Outcome outcome = check_deadline();
  const std::int64_t took_ns = looked_ns_ - begun_ns;
  if (took_ns > long_yield_ns) crowded_until_ns_ = looked_ns_ + yield_rarity * took_ns;
  return outcome;
}

std::int64_t Wait::sleep_ns() const {
  const std::int64_t left = limit_ns_ - waited_ns();
  return std::min(std::max<std::int64_t>(left, ns_per_us), policy_.max_sleep_ns);
}

Wait::Outcome Wait::check_deadline() {
  const std::int64_t now = clock_.now_ns();
  if (!started_) start_ns_ = now, started_ = true;
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  looked_ns_ = now;
  return now - start_ns_ >= limit_ns_ ? Outcome::deadline : Outcome::again;
}

}  // namespace gyre
