#include "lib/exec/resumable.h"

#include "lib/base/caught.h"

#include <algorithm>
#include <new>

namespace gyre::comm {
namespace {

void go_on(std::span<Resumable* const> all, const Clock& clock, const WaitPolicy& policy) {
  std::int64_t limit_ns = INT64_MAX;
  for (const Resumable* one : all) limit_ns = std::min(limit_ns, one->limit_ns());
  Wait wait(clock, policy, limit_ns);
  const auto arm = [&](WaitSet& set) {
    bool asleep = true;
    for (Resumable* one : all)
      if (!one->finished()) asleep &= one->arm(set);
    return asleep;
  };
  const auto disarm = [&] {
    for (Resumable* one : all)
      if (!one->finished()) one->disarm();
  };
  while (true) {
    bool moved = false, finished = true;
    for (Resumable* one : all) {
      if (one->finished()) continue;
      moved |= one->advance();
      finished &= one->finished();
    }
    if (finished) return;
    if (moved) {
      wait.progressed();
      continue;
    }
    if (wait.is_long()) [[unlikely]]
      for (Resumable* one : all)
        if (!one->finished()) one->tell_wait();
    if (wait.pause(arm, disarm) == Wait::Outcome::again) continue;
    const std::int64_t waited_ns = wait.waited_ns();
    for (Resumable* one : all)
      if (!one->finished() && waited_ns >= one->limit_ns()) one->expire();
  }
}

}  // namespace

void run(std::span<Resumable* const> all, const Clock& clock, const WaitPolicy& policy) {
  // Ends are made of little memory; where even that is not to be had, the caller hears of it.
  constexpr int max_tries = 8;
  for (int tries = 1;; ++tries) {
    const Status thrown = thrown_by([&] { go_on(all, clock, policy); });
    if (thrown.ok()) return;
    if (tries == max_tries) throw std::bad_alloc();
    for (Resumable* one : all)
      if (!one->finished()) one->break_off(thrown);
  }
}

}  // namespace gyre::comm
