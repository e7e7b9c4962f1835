// What a broken kernel has to fail: sums of floats over every protocol, under as many seeds as
// GYRE_TRIAL_SEEDS says. tests/mutate_kernels.py links it with kernels that it has broken.
#include "tests/support/device_job.h"

#include <catch2/catch.hpp>

#include <cstdlib>

using namespace gyre;
using namespace gyre::tests;
using plan::Collective;

namespace {

struct Schedule {
  std::string_view algorithm;
  Collective collective;
  int ranks;
  std::uint32_t channels;
  std::uint64_t count;
};
const Schedule schedules[] = {{"ring", Collective::all_reduce, 3, 2, 811},
                              {"twoshot", Collective::all_reduce, 4, 1, 1210},
                              {"tree", Collective::broadcast, 4, 1, 901},
                              {"bruck", Collective::all_to_all, 3, 1, 140}};

void check(const Schedule& schedule, cuda::DeviceProtocol protocol, bool direct,
           std::uint64_t seeds) {
  DeviceCase one;
  one.algorithm = schedule.algorithm;
  one.collective = schedule.collective;
  one.ranks = schedule.ranks;
  one.channels = schedule.channels;
  one.count = schedule.count;
  one.protocol = protocol;
  one.direct = direct;
  DeviceJob job(one);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    MachineOptions options;
    options.seed = seed;
    options.delayed_stores = seed % 4 != 3;
    options.stale_loads = seed % 4 != 2;
    options.most_switches = 5'000'000;
    INFO(one.shown() << ", seed " << seed);
    REQUIRE(job.run(options) == "");
  }
}

// A rank that waits for one that never comes has to leave when it is told so.
void check_abort(cuda::DeviceProtocol protocol, bool direct) {
  DeviceCase one;
  one.protocol = protocol;
  one.direct = direct;
  one.count = 3001;
  DeviceJob job(one);
  job.begin();
  MachineOptions options;
  options.most_switches = 5'000'000;
  REQUIRE(run_grids({job.grids()[0], job.aborter(1, 2000)}, options) == "");
  REQUIRE(job.status(0).outcome == cuda::Outcome::aborted);
}

}  // namespace

TEST_CASE("kernels give the host's bits") {
  const char* const asked = std::getenv("GYRE_TRIAL_SEEDS");
  const std::uint64_t seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 10;
  using enum cuda::DeviceProtocol;
  for (const auto protocol : {simple, ll, ll128}) check_abort(protocol, false);
  check_abort(simple, true);
  for (const Schedule& schedule : schedules)
    for (const auto protocol : {simple, ll, ll128})
      for (const bool direct : {false, true})
        if (protocol == simple || !direct) check(schedule, protocol, direct, seeds);
}
