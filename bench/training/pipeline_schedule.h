// Schedules of pipeline parallelism as data: what one stage does in a training step, in order. A
// batch is cut into micro-batches, each of which goes forward through all stages and comes back.
#pragma once

#include <vector>

namespace gyre::bench {

enum class Schedule {
  one_forward_one_backward,  // "1f1b": PipeDream-Flush (arXiv 2006.09503, section 2.2)
  gpipe,                     // all forward, then all backward, last first (arXiv 1811.06965)
};

struct Action {
  bool is_forward = true;
  int micro_batch = 0;

  bool operator==(const Action&) const = default;
};

std::vector<Action> actions_of(Schedule schedule, int stage, int stages, int micro_batches);

// Micro-batches that have gone forward and not come back, at the most: whose activations a stage
// has to keep.
int max_in_flight(const std::vector<Action>& actions);

}  // namespace gyre::bench
