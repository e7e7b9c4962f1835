// A wait while it is no matter for tools yet: it spins or yields, but does not sleep, and has no
// deadline. A longer wait goes on as a Resumable.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/wait.h"

#include <cstdint>

namespace gyre::comm {

// What a look has found: what is waited for; some progress; nothing; or that it is no use here.
enum class ShortWait : std::uint8_t { done, moved, waits, ends };

// Whether a look said `done`.
template <typename Look>
bool wait_shortly(const WaitPolicy& policy, const Look& look) {
  bool stays = true;
  const auto would_sleep = [&](WaitSet&) { return stays = false; };
  Wait wait(system_clock, policy, INT64_MAX);
  while (stays && !wait.is_long()) {
    (void)wait.pause(would_sleep, [] {});
    const ShortWait seen = look();
    if (seen == ShortWait::done) return true;
    if (seen == ShortWait::ends) return false;
    if (seen == ShortWait::moved) wait.progressed();
  }
  return false;
}

}  // namespace gyre::comm
