#include "bench/training/pipeline_schedule.h"

#include <algorithm>

namespace gyre::bench {

std::vector<Action> actions_of(Schedule schedule, int stage, int stages, int micro_batches) {
  std::vector<Action> actions;
  int forward = 0;
  if (schedule == Schedule::gpipe) {
    while (forward < micro_batches) actions.push_back({true, forward++});
    while (forward > 0) actions.push_back({false, --forward});
    return actions;
  }
  // As many ahead as stages follow: then the first one is back as soon as it can be.
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  while (forward < ahead) actions.push_back({true, forward++});
  for (int backward = 0; backward < micro_batches; ++backward) {
    if (forward < micro_batches) actions.push_back({true, forward++});
    actions.push_back({false, backward});
  }
  return actions;
}

int max_in_flight(const std::vector<Action>& actions) {
  int now = 0, most = 0;
  for (const Action& action : actions) {
    now += action.is_forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace gyre::bench
