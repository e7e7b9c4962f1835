// The schedules of bench/training's pipelines: the order of a stage's actions, and that every
// micro-batch passes all stages and comes back.
#include "bench/training/pipeline_stage.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pipeline_schedule_test {

using namespace gyre::bench;
using namespace gyre::tests;

namespace {

std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    text += action.is_forward ? 'F' : 'B';
    text += std::to_string(action.micro_batch);
  }
  return text;
}

}  // namespace

TEST_CASE("1F1B goes as many ahead as stages follow, then forward and backward in turn",
          "[pipeline]") {
  const auto text = [](int stage, int stages, int micro_batches) {
    return text_of(actions_of(Schedule::one_forward_one_backward, stage, stages, micro_batches));
  };
  CHECK(text(0, 3, 4) == "F0 F1 F2 B0 F3 B1 B2 B3");
  CHECK(text(1, 3, 4) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(text(2, 3, 4) == "F0 B0 F1 B1 F2 B2 F3 B3");
  CHECK(text(0, 4, 2) == "F0 F1 B0 B1");
  CHECK(text(0, 4, 1) == "F0 B0");
  CHECK(text(0, 1, 2) == "F0 B0 F1 B1");
}

TEST_CASE("GPipe goes forward with all, then backward from the last one", "[pipeline]") {
  for (const int stage : {0, 1})
    CHECK(text_of(actions_of(Schedule::gpipe, stage, 2, 3)) == "F0 F1 F2 B2 B1 B0");
}

TEST_CASE("a stage works on each micro-batch once forward, then once backward", "[pipeline]") {
  const int stages = GENERATE(range(1, 7));
  const int micro_batches = GENERATE(range(1, 14));
  const auto schedule = GENERATE(Schedule::one_forward_one_backward, Schedule::gpipe);
  CAPTURE(stages, micro_batches, static_cast<int>(schedule));
  for (int stage = 0; stage < stages; ++stage) {
    const auto actions = actions_of(schedule, stage, stages, micro_batches);
    CHECK(actions.size() == static_cast<std::size_t>(2 * micro_batches));
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const auto forward = std::find(actions.begin(), actions.end(), Action{true, micro_batch});
      REQUIRE(forward != actions.end());
      CHECK(std::find(forward, actions.end(), Action{false, micro_batch}) != actions.end());
    }
    const bool is_gpipe = schedule == Schedule::gpipe;
    CHECK(max_in_flight(actions) ==
          (is_gpipe ? micro_batches : std::min(stages - stage, micro_batches)));
  }
}

namespace {

// What goes from stage to stage: the micro-batch, then the stages that it has passed.
struct Trail {
  int micro_batch = -1, passed = 0;
  int stages[20] = {};

  void pass(int stage) { stages[passed++] = stage; }
  bool operator==(const Trail&) const = default;
};

// 0 1 2 forward and, once it is on its way back, 2 1 0, as far as it has come.
Trail trail_of(int micro_batch, int stages, int passed) {
  Trail trail;
  trail.micro_batch = micro_batch;
  for (int i = 0; i < passed; ++i) trail.pass(i < stages ? i : 2 * stages - 1 - i);
  return trail;
}

// At both ends of the bytes, and the rest filled with the micro-batch.
void write(StageWork::ByteSpan bytes, const Trail& trail) {
  std::memset(bytes.data(), trail.micro_batch, bytes.size());
  std::memcpy(bytes.data(), &trail, sizeof trail);
  std::memcpy(bytes.data() + bytes.size() - sizeof trail, &trail, sizeof trail);
}
bool holds(StageWork::ByteSpan bytes, const Trail& trail) {
  std::vector<std::byte> expected(bytes.size());
  write(expected, trail);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

}  // namespace

TEST_CASE("every micro-batch passes all stages in order and comes back", "[pipeline]") {
  const std::pair<int, int> shape =
      GENERATE(std::pair(1, 3), std::pair(2, 2), std::pair(2, 7), std::pair(3, 1), std::pair(4, 3),
               std::pair(5, 11), std::pair(8, 16));
  const int stages = shape.first, micro_batches = shape.second;
  const auto schedule = GENERATE(Schedule::one_forward_one_backward, Schedule::gpipe);
  // The larger ones find no room in the links' slots: a send ends when its receiver takes it.
  const std::size_t bytes = stages > 4 ? 1000 : GENERATE(as<std::size_t>{}, 200, 3 << 20);
  CAPTURE(stages, micro_batches, static_cast<int>(schedule), bytes);
  on_ranks(stages, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    PipelineStage stage(comm, schedule, micro_batches, bytes);
    std::vector<Action> seen;
    const StageWork work = {
        [&](int micro_batch, StageWork::ByteSpan activations) {
          seen.push_back({true, micro_batch});
          if (rank > 0)
            complaints.expect(holds(activations, trail_of(micro_batch, stages, rank)),
                              "another trail comes forward");
          write(activations, trail_of(micro_batch, stages, rank + 1));
        },
        [&](int micro_batch, StageWork::ByteSpan activations, StageWork::ByteSpan gradients) {
          seen.push_back({false, micro_batch});
          complaints.expect(holds(activations, trail_of(micro_batch, stages, rank + 1)),
                            "the activations have changed");
          const int passed = 2 * stages - 1 - rank;
          if (rank + 1 < stages)
            complaints.expect(holds(gradients, trail_of(micro_batch, stages, passed)),
                              "another trail comes back");
          write(gradients, trail_of(micro_batch, stages, passed + 1));
        }};
    const std::vector<Action> due = actions_of(schedule, rank, stages, micro_batches);
    for (int step = 0; step < 2; ++step) {
      seen.clear();
      complaints.expect(stage.run(work) == gyreSuccess, gyreGetLastError(comm));
      complaints.expect(seen == due, "another order: " + text_of(seen));
      const int most = schedule == Schedule::gpipe ? micro_batches : stages;
      complaints.expect(rank > 0 || max_in_flight(seen) <= most, "too many in flight");
    }
  });
}

}  // namespace pipeline_schedule_test
