#include "lib/gradsync/stale_turn.h"

#include <algorithm>

namespace gyre::gradsync {

StaleTurn decide(std::span<const StaleEntry> table, std::uint64_t round, std::uint64_t bound) {
  using Kind = StaleTurn::Kind;
  const auto some = [&](const auto& is) { return std::any_of(table.begin(), table.end(), is); };
  const auto is_in = [](StaleState state) {
    return [state](const StaleEntry& one) { return one.state == state; };
  };
  if (some([](const StaleEntry& one) { return one.failure != 0; }) ||
      some(is_in(StaleState::leaving)))
    return {Kind::broken, {}};
  const bool all_have_ended = std::all_of(table.begin(), table.end(), is_in(StaleState::ended));
  if (all_have_ended) return {Kind::ended, {}};
  if (!some(is_in(StaleState::ready))) return {};
  StaleTurn turn;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    const StaleEntry& one = table[rank];
    // Left out of this round, its gradient would be older than the bound in the next.
    if (one.state == StaleState::computing && round + 1 > one.base + bound)
      turn.held_up_by.push_back(static_cast<int>(rank));
  }
  if (!turn.held_up_by.empty()) return turn;
  const bool is_complete = !some(is_in(StaleState::computing));
  const bool is_due = some([](const StaleEntry& one) {
    return one.state == StaleState::ready && one.is_impatient != 0;
  });
  if (is_complete || is_due) turn.kind = Kind::round;
  return turn;
}

}  // namespace gyre::gradsync
