// gradsync.h's bounded staleness, ranks as threads of unequal speed: no gradient is lost, counted
// twice or older than the bound, all ranks end with the same bits, and the rank that delays the
// others is named.
#include "lib/gradsync/stale_turn.h"
#include "tests/support/catch.h"
#include "tests/support/gradsync/grad_trainer.h"

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <memory>
#include <thread>

namespace gradsync_stale_test {

using namespace gyre::tests;
using gyre::gradsync::decide;
using gyre::gradsync::StaleEntry;
using gyre::gradsync::StaleState;
using Kind = gyre::gradsync::StaleTurn::Kind;

namespace {

constexpr std::size_t weight_count = 1500, bias_count = 3;

// A model of two tensors whose gradients are small whole numbers: sums are exact in any order.
struct StaleTrainer {
  std::vector<float> weight, bias, weight_gradient, bias_gradient;
  gyreGradStale_t stale = nullptr;
  gyreResult_t created;
  int n;
  std::uint64_t rounds = 0, own = 0, max_staleness = 0;
  bool in_order = true;

  StaleTrainer(gyreComm_t comm, int ranks, const gyreGradStaleConfig_t& config)
      : weight(weight_count, 5),
        bias(bias_count, 7),
        weight_gradient(weight_count),
        bias_gradient(bias_count),
        n(ranks) {
    const gyreGradTensor_t tensors[] = {
        {"weight", weight_count, gyreFloat, weight.data(), weight_gradient.data()},
        {"bias", bias_count, gyreFloat, bias.data(), bias_gradient.data()}};
    created = gyreGradStaleCreate(&stale, comm, tensors, 2, &config);
  }
  ~StaleTrainer() {
    if (stale != nullptr) gyreGradStaleDestroy(stale);
  }
  StaleTrainer(const StaleTrainer&) = delete;
  StaleTrainer& operator=(const StaleTrainer&) = delete;

  static float value(int rank, int step, std::size_t i) {
    return static_cast<float>((rank + 1) * (step % 5 + 1)) + static_cast<float>(i % 3);
  }
  static gyreResult_t update(void* user, const gyreGradRound_t* round) {
    auto& self = *static_cast<StaleTrainer*>(user);
    self.in_order &= round->round == self.rounds++;
    self.own += static_cast<std::uint64_t>(round->own);
    self.max_staleness = std::max(self.max_staleness, round->staleness);
    // Undoes the division by n: sums stay whole numbers.
    const auto ranks = static_cast<float>(self.n);
    for (std::size_t i = 0; i < weight_count; ++i)
      self.weight[i] += self.weight_gradient[i] * ranks;
    for (std::size_t i = 0; i < bias_count; ++i) self.bias[i] += self.bias_gradient[i] * ranks;
    return gyreSuccess;
  }
  gyreResult_t step(int rank, int number) {
    for (std::size_t i = 0; i < weight_count; ++i) weight_gradient[i] = value(rank, number, i);
    for (std::size_t i = 0; i < bias_count; ++i) bias_gradient[i] = value(rank, number, i + 1);
    return gyreGradStaleStep(stale, update, this);
  }
  gyreResult_t end() { return gyreGradStaleEnd(stale, update, this); }
  gyreGradStaleStats_t stats() const {
    gyreGradStaleStats_t stats{};
    stats.size = sizeof stats;
    gyreGradStaleGetStats(stale, &stats);
    return stats;
  }
  // Whether each gradient of each rank has been added once.
  bool holds_all(const std::vector<int>& steps) const {
    for (std::size_t i = 0; i < weight_count; ++i) {
      float expected = 5;
      for (int rank = 0; rank < n; ++rank)
        for (int number = 0; number < steps[static_cast<std::size_t>(rank)]; ++number)
          expected += value(rank, number, i);
      if (weight[i] != expected) return false;
    }
    return true;
  }
};

gyreGradStaleConfig_t config_with(int staleness) {
  gyreGradStaleConfig_t config = GYRE_GRAD_STALE_CONFIG_INITIALIZER;
  config.staleness = staleness;
  config.timeoutMs = 20000;
  return config;
}

void compute_for(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// This rank lacks something: its all-reduces are refused.
std::atomic<int> poor_rank{-1};

}  // namespace

extern "C" gyreResult_t gyreAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                      gyreDataType_t datatype, gyreRedOp_t op, gyreComm_t comm,
                                      gyreStream_t stream) {
  static const auto real =
      reinterpret_cast<decltype(&gyreAllReduce)>(dlsym(RTLD_NEXT, "gyreAllReduce"));
  int rank = 0;
  gyreCommUserRank(comm, &rank);
  if (rank == poor_rank) return gyreSystemError;
  return real(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

TEST_CASE("a round begins when all are ready, or one is impatient and none is held to it",
          "[gradsync]") {
  using S = StaleState;
  const auto entry = [](S state, std::uint64_t base, bool impatient = false) {
    return StaleEntry{.base = base, .state = state, .is_impatient = impatient};
  };
  struct Case {
    std::vector<StaleEntry> table;
    std::uint64_t round, bound;
    Kind kind;
    std::vector<int> held_up_by;
  };
  StaleEntry failed = entry(S::ready, 3);
  failed.failure = gyreTimeout;
  const Case cases[] = {
      {{entry(S::computing, 0), entry(S::computing, 0)}, 0, 1, Kind::wait, {}},
      {{entry(S::ready, 0), entry(S::ready, 0)}, 0, 0, Kind::round, {}},
      {{entry(S::ready, 0), entry(S::computing, 0)}, 0, 1, Kind::wait, {}},
      {{entry(S::ready, 0, true), entry(S::computing, 0)}, 0, 1, Kind::round, {}},
      {{entry(S::ready, 0, true), entry(S::computing, 0)}, 0, 0, Kind::wait, {1}},
      {{entry(S::ready, 1, true), entry(S::computing, 0)}, 1, 1, Kind::wait, {1}},
      {{entry(S::ready, 1, true), entry(S::computing, 0)}, 1, 2, Kind::round, {}},
      {{entry(S::ready, 5, true), entry(S::computing, 3), entry(S::computing, 2)},
       5,
       3,
       Kind::wait,
       {2}},
      {{entry(S::ready, 4), entry(S::ended, 0)}, 4, 0, Kind::round, {}},
      {{entry(S::computing, 4), entry(S::ended, 0)}, 4, 0, Kind::wait, {}},
      {{entry(S::ended, 4), entry(S::ended, 0)}, 4, 0, Kind::ended, {}},
      {{entry(S::ended, 4), entry(S::leaving, 0)}, 4, 0, Kind::broken, {}},
      {{failed, entry(S::computing, 2)}, 3, 1, Kind::broken, {}},
  };
  for (const Case& one : cases) {
    const auto turn = decide(one.table, one.round, one.bound);
    CAPTURE(&one - cases);
    CHECK(turn.kind == one.kind);
    CHECK(turn.held_up_by == one.held_up_by);
  }
}

TEST_CASE("with bound 0 each round has all ranks", "[gradsync]") {
  const int n = GENERATE(1, 2, 3);
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    StaleTrainer trainer(comm, n, config_with(0));
    complaints.expect(trainer.created == gyreSuccess, gyreGradGetLastError());
    for (int step = 0; step < 6; ++step) {
      if (rank == 0) compute_for(2);
      complaints.expect(trainer.step(rank, step) == gyreSuccess, gyreGradGetLastError());
      complaints.expect(trainer.rounds == static_cast<std::uint64_t>(step) + 1, "one round each");
      complaints.expect(trainer.holds_all(std::vector<int>(static_cast<std::size_t>(n), step + 1)),
                        "not the sum over all ranks");
    }
    complaints.expect(trainer.end() == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.stats().maxStaleness == 0, "stale");
  });
}

// Ranks of which the last computes at each step until rank 0 has applied a round without it; and
// how long each computed in truth, as machines may hold any of them up.
class Unequal {
 public:
  explicit Unequal(int n)
      : n_(n), steps_(static_cast<std::size_t>(n), 24), seconds_(steps_.size()) {
    steps_.back() = 7;  // it has fewer
  }
  const std::vector<int>& steps() const { return steps_; }
  int steps_of(int rank) const { return steps_[static_cast<std::size_t>(rank)]; }
  void compute(int rank, const StaleTrainer& trainer) {
    if (rank == 0) rounds_of_first_ = trainer.rounds;
    const auto start = std::chrono::steady_clock::now();
    compute_for(rank == n_ - 1 ? 4 : 1);
    for (int i = 0; rank == n_ - 1 && rounds_of_first_ <= trainer.rounds && i < 10000; ++i)
      compute_for(1);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_[static_cast<std::size_t>(rank)] += took.count() / steps_of(rank);
  }
  // It has no more steps, and applies the rounds of the others.
  void end(int rank) {
    if (rank == 0) rounds_of_first_ = UINT64_MAX;
  }
  // Once all have computed. What lies close together may be told either way.
  bool has_straggler(int rank) const {
    const double longest = *std::max_element(seconds_.begin(), seconds_.end());
    return rank >= 0 && rank < n_ && seconds_[static_cast<std::size_t>(rank)] >= 0.8 * longest;
  }

 private:
  const int n_;
  std::vector<int> steps_;
  std::vector<double> seconds_;  // the mean of a step
  std::atomic<std::uint64_t> rounds_of_first_{0};
};

TEST_CASE("no gradient is lost, counted twice or older than the bound, whoever is slow",
          "[gradsync]") {
  const int n = GENERATE(2, 3);
  const int bound = GENERATE(1, 2, 5);
  CAPTURE(n, bound);
  std::atomic<std::uint64_t> skipped{0};
  Unequal ranks(n);
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradStaleConfig_t config = config_with(bound);
    config.patienceUs = 200;
    StaleTrainer trainer(comm, n, config);
    complaints.expect(trainer.created == gyreSuccess, gyreGradGetLastError());
    for (int step = 0; step < ranks.steps_of(rank); ++step) {
      ranks.compute(rank, trainer);
      complaints.expect(trainer.step(rank, step) == gyreSuccess, gyreGradGetLastError());
    }
    ranks.end(rank);
    complaints.expect(trainer.end() == gyreSuccess, gyreGradGetLastError());
    complaints.expect(trainer.in_order, "rounds out of order");
    complaints.expect(trainer.holds_all(ranks.steps()), "a gradient is lost or counted twice");
    complaints.expect(trainer.own == static_cast<std::uint64_t>(ranks.steps_of(rank)),
                      "own rounds");
    const gyreGradStaleStats_t stats = trainer.stats();
    complaints.expect(stats.maxStaleness <= static_cast<std::uint64_t>(bound), "past the bound");
    complaints.expect(stats.maxStaleness == trainer.max_staleness, "another staleness");
    complaints.expect(ranks.has_straggler(stats.straggler),
                      "straggler " + std::to_string(stats.straggler));
    complaints.expect(stats.stragglerSeconds > stats.othersSeconds, "a straggler that is fast");
    if (rank == n - 1) skipped = stats.maxStaleness;
    const gyreResult_t late = trainer.step(rank, 0);
    complaints.expect(late == gyreInvalidUsage, "a step after the end");
  });
  CHECK(skipped >= 1);  // or this has shown nothing
}

TEST_CASE("a rank that leaves is named to the others", "[gradsync][faults]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    auto trainer = std::make_unique<StaleTrainer>(comm, 3, config_with(2));
    gyreResult_t result = trainer->step(rank, 0);
    if (rank == 1) return;  // without gyreGradStaleEnd
    for (int step = 1; step < 2000 && result == gyreSuccess; ++step)
      result = trainer->step(rank, step);
    complaints.expect(result == gyreRemoteError, std::to_string(result));
    complaints.expect(mentions(gyreGradGetLastError(), "rank 1 has ended its replica"),
                      gyreGradGetLastError());
  });
}

TEST_CASE("a rank that gives no gradient is named when the deadline has passed",
          "[gradsync][faults]") {
  std::atomic<int> done{0};
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradStaleConfig_t config = config_with(1);
    config.timeoutMs = 400;
    StaleTrainer trainer(comm, 2, config);
    gyreResult_t result = gyreSuccess;
    if (rank == 0) {
      for (int step = 0; step < 3 && result == gyreSuccess; ++step)
        result = trainer.step(rank, step);
      complaints.expect(result == gyreTimeout, std::to_string(result));
      complaints.expect(mentions(gyreGradGetLastError(), "waits for rank 1 (since round 0)"),
                        gyreGradGetLastError());
      ++done;
    } else {
      for (int i = 0; i < 1000 && done == 0; ++i) compute_for(10);
      complaints.expect(trainer.step(rank, 0) == gyreTimeout, "the straggler is told, too");
    }
  });
}

TEST_CASE("an update that fails ends it on all ranks", "[gradsync][faults]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    StaleTrainer trainer(comm, 2, config_with(1));
    const auto fails = [](void*, const gyreGradRound_t*) { return gyreSystemError; };
    if (rank == 0) {
      complaints.expect(gyreGradStaleStep(trainer.stale, fails, nullptr) == gyreSystemError,
                        "its own error");
      complaints.expect(mentions(gyreGradGetLastError(), "in the update"), gyreGradGetLastError());
      for (int time = 0; time < 2; ++time)
        complaints.expect(trainer.end() == gyreSystemError, "its end hides it");
      return;
    }
    gyreResult_t result = gyreSuccess;
    for (int step = 0; step < 2000 && result == gyreSuccess; ++step)
      result = trainer.step(rank, step);
    complaints.expect(result == gyreRemoteError, gyreGradGetLastError());
    for (int time = 0; time < 2; ++time)
      complaints.expect(trainer.end() == gyreRemoteError, "its end hides the other's");
  });
}

TEST_CASE("what a rank lacks for a round ends it on all ranks at once", "[gradsync][faults]") {
  std::atomic<int> begun{0}, done{0};
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreGradStaleConfig_t config = config_with(1);
    config.timeoutMs = 4000;
    StaleTrainer trainer(comm, 2, config);
    gyreResult_t result = trainer.step(rank, 0);
    complaints.expect(result == gyreSuccess, gyreGradGetLastError());
    ++begun;
    for (int i = 0; i < 1000 && begun < 2; ++i) compute_for(1);  // no first step may fail
    if (rank == 1) poor_rank = rank;
    for (int step = 1; step < 2000 && result == gyreSuccess; ++step)
      result = trainer.step(rank, step);
    complaints.expect(result == (rank == 1 ? gyreSystemError : gyreRemoteError),
                      std::to_string(result) + ": " + gyreGradGetLastError());
    ++done;
    for (int i = 0; i < 1000 && done < 2; ++i) compute_for(10);  // the rank that lacks it stays
    poor_rank = -1;
  });
}

TEST_CASE("what bounded staleness is not made for is refused", "[gradsync]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto make = [&](const gyreGradStaleConfig_t& config) {
      return StaleTrainer(comm, 2, config).created;
    };
    complaints.expect(make(config_with(-1)) == gyreInvalidArgument, "a bound below 0");
    complaints.expect(make(config_with(rank + 1)) == gyreMismatch, "bounds that differ");
    complaints.expect(mentions(gyreGradGetLastError(), "config.staleness"), gyreGradGetLastError());
    gyreGradStaleConfig_t wrong = config_with(1);
    wrong.magic = GYRE_GRAD_CONFIG_MAGIC;
    complaints.expect(make(wrong) == gyreInvalidArgument, "another struct");
    gyreGradStale_t stale = nullptr;
    float parameter = 0;
    const gyreGradTensor_t bare = {"bare", 1, gyreFloat, &parameter, nullptr};
    complaints.expect(
        gyreGradStaleCreate(&stale, comm, &bare, 1, nullptr) == gyreInvalidArgument && !stale,
        "no gradient");
    StaleTrainer trainer(comm, 2, config_with(1));
    complaints.expect(gyreGradStaleStep(trainer.stale, nullptr, nullptr) == gyreInvalidArgument,
                      "no update");
    const auto calls_back = [](void* user, const gyreGradRound_t*) {
      auto& self = *static_cast<StaleTrainer*>(user);
      return gyreGradStaleEnd(self.stale, StaleTrainer::update, &self);
    };
    // The first step may return before its round is over; the second one waits for that.
    gyreResult_t result = gyreSuccess;
    for (int step = 0; step < 2 && result == gyreSuccess; ++step)
      result = gyreGradStaleStep(trainer.stale, calls_back, &trainer);
    complaints.expect(result == gyreInvalidUsage, gyreGradGetLastError());
  });
}

}  // namespace gradsync_stale_test
