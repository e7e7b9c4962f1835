#include "lib/comm/resumable.h"

#include "lib/base/caught.h"

#include <algorithm>
#include <new>

namespace gyre::comm {
namespace {

struct Tasks {
  std::span<Resumable* const> all;
  SideTask* const side;  // null: none
  Resumable* beside = nullptr;
  bool had_work = false;

  // Once a turn. The task beside has one turn more than it has work, to let go of what it holds.
  void look_beside() {
    if (side == nullptr) return;
    const bool has_work = side->has_work();
    beside = has_work || had_work ? &side->task() : nullptr;
    had_work = has_work;
  }
  template <typename Act>
  void for_each_unfinished(const Act& act) const {
    for (Resumable* one : all)
      if (!one->finished()) act(*one);
    if (beside != nullptr && !beside->finished()) act(*beside);
  }
};

void go_on(Tasks& tasks, const Clock& clock, const WaitPolicy& policy) {
  const auto min_limit_ns = [&] {
    std::int64_t found_ns = INT64_MAX;
    tasks.for_each_unfinished(
        [&](const Resumable& one) { found_ns = std::min(found_ns, one.limit_ns()); });
    return found_ns;
  };
  Wait wait(clock, policy, min_limit_ns());
  const auto arm = [&](WaitSet& set) {
    bool asleep = true;
    tasks.for_each_unfinished([&](Resumable& one) { asleep &= one.arm(set); });
    return asleep;
  };
  const auto disarm = [&] { tasks.for_each_unfinished([](Resumable& one) { one.disarm(); }); };
  while (true) {
    tasks.look_beside();
    bool moved = false, finished = true;
    tasks.for_each_unfinished([&](Resumable& one) {
      moved |= one.advance();
      finished &= one.finished();
    });
    if (finished) return;
    if (moved) {
      wait.progressed();
      continue;
    }
    if (wait.is_long()) [[unlikely]] {
      tasks.for_each_unfinished([](Resumable& one) { one.tell_wait(); });
      wait.set_limit(min_limit_ns());  // another thread may have changed it
    }
    if (wait.pause(arm, disarm) == Wait::Outcome::again) continue;
    const std::int64_t waited_ns = wait.waited_ns();
    tasks.for_each_unfinished([&](Resumable& one) {
      if (waited_ns >= one.limit_ns()) one.expire();
    });
    wait.set_limit(min_limit_ns());  // one with several parts has more time for the next one
  }
}

}  // namespace

void run(std::span<Resumable* const> all, const Clock& clock, const WaitPolicy& policy,
         SideTask* beside) {
  Tasks tasks{all, beside};
  // Ends are made of little memory; where even that is not to be had, the caller hears of it.
  constexpr int max_tries = 8;
  for (int tries = 1;; ++tries) {
    const Status thrown = thrown_by([&] { go_on(tasks, clock, policy); });
    if (thrown.ok()) return;
    if (tries == max_tries) throw std::bad_alloc();
    tasks.for_each_unfinished([&](Resumable& one) { one.break_off(thrown); });
  }
}

}  // namespace gyre::comm
