// Training in which one rank is slow: synchronous, with bounded staleness, and by local SGD. Ranks
// are threads that sleep for the time of a step's computation, so there may be more of them than
// cores. They really learn: a small perceptron, from a teacher of the same shape. Prints a line of
// JSON for each mode.
#include "bench/training/job.h"
#include "bench/training/perceptron.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>

using namespace gyre::bench;
using SteadyClock = std::chrono::steady_clock;

namespace {

struct Options {
  int ranks = 4, slow_rank = 3;
  double step_ms = 10, slow_factor = 2, jitter = 0.1, seconds = 6, rate = 0.5;
  std::vector<int> staleness = {1, 4};
  int local_steps = 8;
};

// A way to train, and what came of it on one rank.
struct Way {
  enum class Kind { synchronous, stale, local } kind;
  std::string name;
  int staleness = 0;
};
struct Course {
  std::vector<double> step_ms, loss_seconds, losses;
  std::uint64_t steps = 0, max_staleness = 0;
  int straggler = -1;
  double straggler_ms = 0, others_ms = 0;
};

class Trainer {
 public:
  Trainer(gyreComm_t comm, const Options& options, const Way& way)
      : options_(options), way_(way), rank_(rank_of(comm)), random_(100U + rank_) {
    const auto tensors = model_.tensors();
    if (way.kind == Way::Kind::stale) {
      gyreGradStaleConfig_t config = GYRE_GRAD_STALE_CONFIG_INITIALIZER;
      config.staleness = way.staleness;
      expect(gyreGradStaleCreate(&stale_, comm, tensors.data(), tensors.size(), &config));
    } else {
      expect(gyreGradCreate(&grad_, comm, tensors.data(), tensors.size(), nullptr));
      if (way.kind == Way::Kind::local) expect(gyreGradSetSync(grad_, 0));
    }
  }

  // Until the time is over, as rank 0's clock says.
  Course run(gyreComm_t comm) {
    expect(gyreBarrier(comm, nullptr), comm);
    const auto began = SteadyClock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(SteadyClock::now() - began).count();
    };
    while (true) {
      const double now = seconds();
      if (rank_ == 0 && (course_.losses.empty() || now > course_.loss_seconds.back() + 0.1)) {
        course_.loss_seconds.push_back(now);
        course_.losses.push_back(model_.test_loss());
      }
      compute();
      end_step();
      course_.step_ms.push_back((seconds() - now) * 1e3);
      ++course_.steps;
      if (is_last(comm, seconds())) break;
    }
    end();
    return course_;
  }

 private:
  // Gradients of a batch of its own, after as long as that would take.
  void compute() {
    std::exponential_distribution<double> late(1);
    const double factor = rank_ == options_.slow_rank ? options_.slow_factor : 1;
    const std::chrono::duration<double, std::milli> takes(
        options_.step_ms * factor * (1 - options_.jitter + options_.jitter * late(random_)));
    const auto until =
        SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(takes);
    model_.compute_gradients(random_);
    std::this_thread::sleep_until(until);
  }

  void end_step() {
    if (way_.kind == Way::Kind::stale) return expect(gyreGradStaleStep(stale_, update, this));
    for (std::size_t tensor = Perceptron::tensor_count; tensor-- > 0;)
      expect(gyreGradReady(grad_, tensor, nullptr));
    expect(gyreGradWait(grad_));
    model_.update(static_cast<float>(options_.rate));
    if (way_.kind == Way::Kind::local &&
        (course_.steps + 1) % static_cast<std::uint64_t>(options_.local_steps) == 0)
      expect(gyreGradAverageParameters(grad_));
  }
  static gyreResult_t update(void* user, const gyreGradRound_t*) {
    auto& self = *static_cast<Trainer*>(user);
    self.model_.update(static_cast<float>(self.options_.rate));
    return gyreSuccess;
  }

  // Ranks that take steps together end together. Local ones meet where they average.
  bool is_last(gyreComm_t comm, double now) {
    if (way_.kind == Way::Kind::stale) return now >= options_.seconds;
    const bool meets = way_.kind == Way::Kind::synchronous ||
                       course_.steps % static_cast<std::uint64_t>(options_.local_steps) == 0;
    if (!meets) return false;
    std::int32_t is_over = now >= options_.seconds;
    expect(gyreBcast(&is_over, 1, gyreInt32, 0, comm, nullptr), comm);
    return is_over != 0;
  }

  void end() {
    if (way_.kind == Way::Kind::stale) {
      expect(gyreGradStaleEnd(stale_, update, this));
      gyreGradStaleStats_t stats{};
      stats.size = sizeof stats;
      expect(gyreGradStaleGetStats(stale_, &stats));
      course_.max_staleness = stats.maxStaleness;
      take_pace(stats);
      return expect(gyreGradStaleDestroy(stale_));
    }
    gyreGradStats_t stats{};
    stats.size = sizeof stats;
    expect(gyreGradGetStats(grad_, &stats));
    take_pace(stats);
    expect(gyreGradDestroy(grad_));
  }
  template <typename Stats>
  void take_pace(const Stats& stats) {
    course_.straggler = stats.straggler;
    course_.straggler_ms = stats.stragglerSeconds * 1e3;
    course_.others_ms = stats.othersSeconds * 1e3;
  }

  const Options& options_;
  const Way& way_;
  const int rank_;
  std::mt19937 random_;
  Perceptron model_;
  gyreGrad_t grad_ = nullptr;
  gyreGradStale_t stale_ = nullptr;
  Course course_;
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

void measure(const Options& options, const Way& way) {
  std::vector<Course> courses(static_cast<std::size_t>(options.ranks));
  const auto began = SteadyClock::now();
  run_threads(options.ranks, [&](gyreComm_t comm) {
    Trainer trainer(comm, options, way);
    courses[static_cast<std::size_t>(rank_of(comm))] = trainer.run(comm);
  });
  const double took = std::chrono::duration<double>(SteadyClock::now() - began).count();
  std::uint64_t steps = 0, staleness = 0;
  for (const Course& course : courses) {
    steps += course.steps;
    staleness = std::max(staleness, course.max_staleness);
  }
  const Course& first = courses[0];
  const nlohmann::ordered_json line = {{"way", way.name},
                                       {"ranks", options.ranks},
                                       {"slow_rank", options.slow_rank},
                                       {"slow_factor", options.slow_factor},
                                       {"steps_per_second", static_cast<double>(steps) / took},
                                       {"fast_step_p50_ms", quantile(first.step_ms, 0.5)},
                                       {"fast_step_p99_ms", quantile(first.step_ms, 0.99)},
                                       {"staleness_bound", way.staleness},
                                       {"staleness_most", staleness},
                                       {"straggler", first.straggler},
                                       {"straggler_ms", first.straggler_ms},
                                       {"others_ms", first.others_ms},
                                       {"loss_seconds", first.loss_seconds},
                                       {"losses", first.losses}};
  std::cout << line.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CommandLine line("straggler",
                   "Training with one slow rank: synchronous, bounded staleness, local SGD.");
  line.add_option("--ranks", options.ranks, whole(2, 64), "N", "as threads (default: 4)");
  line.add_option("--step-ms", options.step_ms, number(0.1, 1e4), "MS",
                  "that a step computes (default: 10)");
  line.add_option("--slow-rank", options.slow_rank, whole(-1, 63), "RANK",
                  "the rank that is slow (default: 3); -1: none");
  line.add_option("--slow-factor", options.slow_factor, number(1, 100), "FACTOR",
                  "how much longer it takes (default: 2)");
  line.add_option("--jitter", options.jitter, number(0, 1), "SHARE",
                  "share of a step that is random (default: 0.1)");
  line.add_option("--seconds", options.seconds, number(0.01, 1e4), "S", "of each way (default: 6)");
  line.add_option("--rate", options.rate, number(0, 1e6), "RATE", "of learning (default: 0.5)");
  line.add_option("--staleness", options.staleness, whole(0, 1000), "N...",
                  "bounds to try (default: 1 4)")
      .takes_several = true;
  line.add_option("--local-steps", options.local_steps, whole(1, 10000), "N",
                  "of local SGD (default: 8)");
  line.add_example("straggler --ranks 3 --slow-factor 4 --staleness 0 2");
  parse(line, argc, argv);
  if (options.slow_rank < -1 || options.slow_rank >= options.ranks)
    fail("--slow-rank is none of the ranks");
  measure(options, {Way::Kind::synchronous, "synchronous"});
  for (const int bound : options.staleness)
    measure(options, {Way::Kind::stale, "staleness <= " + std::to_string(bound), bound});
  measure(options,
          {Way::Kind::local, "local SGD, " + std::to_string(options.local_steps) + " steps"});
  return 0;
}
