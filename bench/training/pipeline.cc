// The bubble of pipeline parallelism: the share of a training step in which a stage waits, by
// schedule and number of micro-batches, beside the formula (p - 1) / (m + p - 1). Ranks are stages:
// processes (gyre run -n) or threads (-t). Rank 0 prints a table, and JSON.
#include "bench/training/job.h"
#include "bench/training/pipeline_stage.h"
#include "bench/training/timed_work.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace gyre::bench {
namespace {

struct Options {
  int threads = 0, rounds = 5, naive_rounds = 5;
  std::vector<int> micro_batches = {2, 4, 8, 16};
  std::vector<std::string> schedules = {"1f1b", "gpipe"};
  double forward_ms = 10, backward_ms = 20;
  std::size_t bytes = 64 << 10;
  bool compute = false;
  std::string json;
};

// At the beginning of what goes from stage to stage: which micro-batch it is, and how many stages
// have had it. A stage ends the job if it gets anything but what is due.
struct Stamp {
  int micro_batch = 0, passed = 0;
};
void check_stamp(StageWork::ByteSpan bytes, const Stamp& due) {
  Stamp stamp;
  std::memcpy(&stamp, bytes.data(), sizeof stamp);
  if (stamp.micro_batch != due.micro_batch || stamp.passed != due.passed)
    fail("micro-batch " + std::to_string(stamp.micro_batch) + " came after " +
         std::to_string(stamp.passed) + " stages, where " + std::to_string(due.micro_batch) +
         " after " + std::to_string(due.passed) + " was due");
}
void put_stamp(StageWork::ByteSpan bytes, const Stamp& stamp) {
  std::memcpy(bytes.data(), &stamp, sizeof stamp);
}

struct StepTime {
  double ms = 0, busy_ms = 0;
};

// A training step of all stages. Its time is that of the stage that took longest; busy time, in
// which it computed, is the stages' mean.
StepTime time_step(gyreComm_t comm, PipelineStage& stage, TimedWork& work, double forward_ms,
                   double backward_ms) {
  const int place = stage.stage(), stages = stage.stages();
  const StageWork takes = {
      [&](int micro_batch, StageWork::ByteSpan activations) {
        if (place > 0) check_stamp(activations, {micro_batch, place});
        work.take(forward_ms);
        put_stamp(activations, {micro_batch, place + 1});
      },
      [&](int micro_batch, StageWork::ByteSpan activations, StageWork::ByteSpan gradients) {
        check_stamp(activations, {micro_batch, place + 1});
        if (place + 1 < stages) check_stamp(gradients, {micro_batch, 2 * stages - 1 - place});
        work.take(backward_ms);
        put_stamp(gradients, {micro_batch, 2 * stages - place});
      }};
  work.busy_ms();
  expect(gyreBarrier(comm, nullptr), comm);
  const std::int64_t begin = now_ns();
  expect(stage.run(takes), comm);
  double ms = ms_since(begin), busy_ms = work.busy_ms();
  expect(gyreAllReduce(&ms, &ms, 1, gyreDouble, gyreMax, comm, nullptr), comm);
  expect(gyreAllReduce(&busy_ms, &busy_ms, 1, gyreDouble, gyreAvg, comm, nullptr), comm);
  return {ms, busy_ms};
}

// All steps of one schedule and number of micro-batches.
struct Series {
  std::vector<double> step_ms, busy_ms;

  void add(const StepTime& step) {
    step_ms.push_back(step.ms);
    busy_ms.push_back(step.busy_ms);
  }
};
using AllSeries = std::map<std::pair<std::string, int>, Series>;  // schedule, micro-batches

// The naive way is a pipeline of one micro-batch, the whole batch: one stage computes at a time.
constexpr const char* naive = "naive";

Schedule schedule_named(const std::string& name) {
  return name == "gpipe" ? Schedule::gpipe : Schedule::one_forward_one_backward;
}

// Of rank 0, while the others wait.
double agreed_products_per_ms(gyreComm_t comm) {
  double products_per_ms = 0;
  if (rank_of(comm) == 0) products_per_ms = TimedWork::measure_products_per_ms();
  expect(gyreBcast(&products_per_ms, 1, gyreDouble, 0, comm, nullptr), comm);
  return products_per_ms;
}

AllSeries measure(gyreComm_t comm, const Options& options) {
  AllSeries all;
  TimedWork work(options.compute ? agreed_products_per_ms(comm) : 0);
  std::vector<std::string> schedules = options.schedules;
  schedules.push_back(naive);
  for (int round = -1; round < options.rounds; ++round)  // the first one opens connections
    for (const int micro_batches : options.micro_batches)
      for (const std::string& schedule : schedules) {
        if (schedule == naive && round >= options.naive_rounds) continue;
        const int share = schedule == naive ? micro_batches : 1;
        PipelineStage stage(comm, schedule_named(schedule), micro_batches / share,
                            options.bytes * static_cast<std::size_t>(share));
        const double scale = round < 0 ? 0 : share;
        const StepTime step =
            time_step(comm, stage, work, scale * options.forward_ms, scale * options.backward_ms);
        if (round >= 0) all[{schedule, micro_batches}].add(step);
      }
  return all;
}

// What one stage computes in a step: m * (tf + tb).
double ideal_ms(const Options& options, const Series& series, int micro_batches) {
  if (options.compute) return median(series.busy_ms);
  return micro_batches * (options.forward_ms + options.backward_ms);
}

nlohmann::ordered_json row_of(const Options& options, const AllSeries& all, int stages,
                              const std::string& schedule, int micro_batches) {
  const Series& series = all.at({schedule, micro_batches});
  const Series& in_turn = all.at({naive, micro_batches});
  const double step = median(series.step_ms), naive_step = median(in_turn.step_ms);
  const double ideal = ideal_ms(options, series, micro_batches);
  const double bubble = 1 - ideal / step;
  const double formula = (stages - 1.0) / (micro_batches + stages - 1.0);
  const auto [least, most] = std::minmax_element(series.step_ms.begin(), series.step_ms.end());
  const auto actions = actions_of(schedule_named(schedule), 0, stages, micro_batches);
  return {{"stages", stages},
          {"as", options.threads > 0 ? "threads" : "processes"},
          {"work", options.compute ? "compute" : "timed"},
          {"schedule", schedule},
          {"micro_batches", micro_batches},
          {"forward_ms", options.forward_ms},
          {"backward_ms", options.backward_ms},
          {"bytes", options.bytes},
          {"rounds", options.rounds},
          {"in_flight", max_in_flight(actions)},
          {"step_ms", step},
          {"step_ms_least", *least},
          {"step_ms_most", *most},
          {"ideal_ms", ideal},
          {"busy_ms", median(series.busy_ms)},  // with what sleeps were too long
          {"bubble", bubble},
          {"formula", formula},
          {"ratio", bubble / formula},
          {"naive_step_ms", naive_step},
          {"naive_bubble", 1 - ideal_ms(options, in_turn, micro_batches) / naive_step}};
}

void report(const Options& options, const AllSeries& all, int stages) {
  std::printf("%6s %13s %8s %9s %9s %9s %8s %8s %6s %9s %9s\n", "stages", "micro-batches",
              "schedule", "in flight", "step ms", "ideal ms", "bubble", "formula", "ratio",
              "naive ms", "bubble");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int micro_batches : options.micro_batches)
    for (const std::string& schedule : options.schedules) {
      const auto& row = rows.emplace_back(row_of(options, all, stages, schedule, micro_batches));
      const auto number = [&](const char* name) { return row.at(name).get<double>(); };
      std::printf("%6d %13d %8s %9.0f %9.2f %9.2f %8.4f %8.4f %6.3f %9.2f %9.4f\n", stages,
                  micro_batches, schedule.c_str(), number("in_flight"), number("step_ms"),
                  number("ideal_ms"), number("bubble"), number("formula"), number("ratio"),
                  number("naive_step_ms"), number("naive_bubble"));
    }
  std::fflush(stdout);
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << rows.dump(1) << '\n';
  if (!file.flush()) fail("cannot write " + options.json);
}

void run_rank(gyreComm_t comm, const Options& options) {
  const int ranks = size_of(comm), rank = rank_of(comm);
  if (ranks < 2) fail("a pipeline has at least 2 stages: gyre run -n, or --threads");
  const gyreMeshAxis_t axis = {"pipeline", -1};
  gyreMesh_t mesh = nullptr;
  gyreComm_t line = nullptr;
  expect(gyreMeshCreate(&mesh, comm, &axis, 1));
  expect(gyreMeshComm(mesh, axis.name, &line));
  const AllSeries all = measure(line, options);
  if (rank == 0) report(options, all, ranks);
  expect(gyreMeshDestroy(mesh));
}

constexpr const char* about =
    "The bubble of pipeline parallelism: the share of a training step in which a stage waits, "
    "beside "
    "the formula (p - 1) / (m + p - 1), for p stages, one a rank, and m micro-batches. A stage's "
    "forward and backward pass of a micro-batch take a fixed time: by default they sleep until it "
    "is "
    "over, so that there may be more stages than processors. ideal: m times both, what a stage "
    "computes; bubble: 1 - ideal / step. naive: the whole batch goes through the stages as one, so "
    "that one stage computes at a time. in flight: micro-batches whose activations the first stage "
    "has to keep. Medians over rounds, in which all take turns.";

void add_options(CommandLine& line, Options& options) {
  line.add_option("-t,--threads", options.threads, whole(2, 256), "N",
                  "ranks as so many threads, instead of processes");
  line.add_option("-m,--micro-batches", options.micro_batches, whole(1, 4096), "N...",
                  "of a step (default: 2 4 8 16)")
      .takes_several = true;
  line.add_option("-s,--schedules", options.schedules, one_of({"1f1b", "gpipe"}), "NAME...",
                  "1f1b, gpipe (default: both)")
      .takes_several = true;
  line.add_option("--forward-ms", options.forward_ms, number(0.001, 60000), "MS",
                  "of a micro-batch on a stage (default: 10)");
  line.add_option("--backward-ms", options.backward_ms, number(0.001, 60000), "MS",
                  "the same of its backward pass (default: 20)");
  line.add_option("--bytes", options.bytes, whole(8, std::int64_t{1} << 30), "N",
                  "that go from stage to stage (default: 65536)");
  line.add_option("--rounds", options.rounds, whole(1, 1000), "N",
                  "steps of each schedule (default: 5)");
  line.add_option("--naive-rounds", options.naive_rounds, whole(1, 1000), "N",
                  "of them, with the naive way, which takes longest (default: 5)");
  line.add_flag("--compute", options.compute,
                "products of matrices in place of sleep, as many as take so long on rank 0 alone; "
                "ideal is then what stages computed in the step, the mean over stages. For no more "
                "stages than processors");
  line.add_option("--json", options.json, any_text(), "FILE", "write the rows to this file, too");
  line.add_example("pipeline_bubble -t 4 -m 4 16");
}

}  // namespace
}  // namespace gyre::bench

int main(int argc, char** argv) {
  using namespace gyre::bench;
  Options options;
  CommandLine line("pipeline_bubble", about);
  add_options(line, options);
  parse(line, argc, argv);
  const auto body = [&](gyreComm_t comm) { run_rank(comm, options); };
  options.threads > 0 ? run_threads(options.threads, body) : run_process(body);
  return 0;
}
