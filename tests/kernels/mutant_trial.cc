// The trial that a broken kernel has to fail: sums of floats over every protocol that is linked,
// under as many seeds as GYRE_TRIAL_SEEDS says. mutate_kernels.py links it with broken kernels. A
// failure names its seed, and the unbroken kernels have to pass all seeds up to that one.
#include "tests/support/catch.h"
#include "tests/support/kernels/device_job.h"

#include <cstdlib>

using namespace gyre;
using namespace gyre::tests;
using enum cuda::DeviceProtocol;
using plan::Collective;

// What an addition is that orders nothing, for mutants alone.
namespace gyre::cuda::device {
std::uint32_t add_relaxed(std::uint32_t* word, std::uint32_t value) {
  let_others_run();
  const std::uint32_t before = *word;
  *word = before + value;
  return before;
}
}  // namespace gyre::cuda::device

namespace {

struct Way {
  cuda::DeviceProtocol protocol;
  bool direct;
  int processes = 1;
  bool is_linked() const {
    return cuda::find_kernel(protocol, ElementType::float32, ReduceOp::sum) != nullptr;
  }
};
const Way ways[] = {
    {simple, false}, {ll, false}, {ll128, false}, {simple, true}, {simple, true, 2}};

struct Schedule {
  std::string_view algorithm;
  Collective collective;
  int ranks;
  std::uint32_t channels;
  std::uint64_t count;
  std::uint64_t shift;
  std::uint64_t piece_bytes;
  bool multicast = false;
  bool chained = false;
};
// Bruck packs messages; hierarchical's lanes wait for each other; the small one never sends as much
// as a quarter of its ring.
const Schedule schedules[] = {{"tree", Collective::broadcast, 2, 1, 12, 2, 1440},
                              {"ring", Collective::all_reduce, 3, 2, 811, 0, 256},
                              {"twoshot", Collective::all_reduce, 4, 1, 1210, 1, 256},
                              {"tree", Collective::broadcast, 4, 1, 901, 4, 256},
                              {"bruck", Collective::all_to_all, 3, 1, 140, 8, 256},
                              {"hierarchical", Collective::all_reduce, 4, 1, 300, 0, 256},
                              {"twoshot", Collective::all_reduce, 3, 1, 610, 0, 256, true},
                              {"twoshot", Collective::all_gather, 3, 1, 210, 0, 256, true},
                              {"twoshot", Collective::reduce_scatter, 3, 1, 210, 0, 256, true},
                              {"ring", Collective::all_reduce, 3, 1, 300, 0, 256, false, true}};

DeviceCase case_of(const Schedule& schedule, const Way& way) {
  DeviceCase one;
  one.algorithm = schedule.algorithm;
  one.collective = schedule.collective;
  one.ranks = schedule.ranks;
  one.channels = schedule.channels;
  one.count = schedule.count;
  one.shift = schedule.shift;
  one.piece_bytes = schedule.piece_bytes;
  one.multicast = schedule.multicast;
  one.chained = schedule.chained;
  if (schedule.algorithm == "hierarchical") one.hosts = 2;
  one.zero_signature = schedule.algorithm == "ring";
  one.protocol = way.protocol;
  one.direct = way.direct;
  one.processes = way.processes;
  return one;
}

MachineOptions machine_of(std::uint64_t seed) {
  MachineOptions options;
  options.seed = seed;
  options.delayed_stores = seed % 4 != 3;
  options.stale_loads = seed % 4 != 2;
  options.max_switches = 1'000'000;
  return options;
}

DeviceCase pair_of_ranks(const Way& way) {
  DeviceCase one;
  one.protocol = way.protocol;
  one.direct = way.direct;
  one.processes = way.processes;
  one.count = 3001;
  return one;
}

// A rank that waits for one that never comes has to leave when it is told so.
void check_abort(const Way& way, std::uint64_t seed) {
  DeviceJob job(pair_of_ranks(way));
  job.begin();
  REQUIRE(run_grids({job.grids()[0], job.aborter(1, 2000), job.listener(2, 0)}, machine_of(seed)) ==
          "");
  REQUIRE(job.heard().outcome == cuda::Outcome::aborted);
  REQUIRE(job.heard().what != cuda::WaitingFor::nothing);
  REQUIRE(job.heard().peer == 1);
}

// One of two ranks that call different things sees it, and the other is told to leave.
void check_mismatch(const Way& way, std::uint64_t seed) {
  DeviceJob job(pair_of_ranks(way));
  job.begin();
  job.launches()[1].signature += 1;
  auto grids = job.grids();
  grids.push_back(job.aborter(2, 5000));
  REQUIRE(run_grids(grids, machine_of(seed)) == "");
  const bool either = job.status(0).outcome == cuda::Outcome::mismatch ||
                      job.status(1).outcome == cuda::Outcome::mismatch;
  REQUIRE(either);
}

}  // namespace

// Seed by seed over all jobs, so that most mutants fail soon.
TEST_CASE("kernels give the host's bits") {
  const char* const asked = std::getenv("GYRE_TRIAL_SEEDS");
  const std::uint64_t seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 10;
  std::vector<std::pair<DeviceCase, std::unique_ptr<DeviceJob>>> jobs;
  for (const Schedule& schedule : schedules)
    for (const Way& way : ways) {
      if (!way.is_linked()) continue;
      const DeviceCase one = case_of(schedule, way);
      jobs.emplace_back(one, std::make_unique<DeviceJob>(one));
    }
  REQUIRE(!jobs.empty());
  for (const Way& way : ways)
    if (way.is_linked() && way.protocol != simple) {
      INFO("credit, seed 0");
      REQUIRE(told_too_often(way.protocol) == "");
    }
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    for (const auto& [one, job] : jobs) {
      INFO(one.shown() << ", seed " << seed);
      REQUIRE(job->run(machine_of(seed)) == "");
    }
    INFO("an abort or a mismatch, seed " << seed);
    for (const Way& way : ways) {
      if (!way.is_linked()) continue;
      check_abort(way, seed);
      check_mismatch(way, seed);
    }
  }
}
