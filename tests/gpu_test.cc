// Communicators of CUDA devices on a GPU, by the library as users link it: the cases that
// device_communicator_test runs over the fake driver. Ranks are threads of this process, all on
// device 0. Exit code 77 without a GPU.
//
// Ranks as processes, and CUDA graphs, have their place below: see "not here yet".
#include "tests/support/cuda_cases.h"
#include "tests/support/gpu_main.h"

using namespace gyre;
using namespace gyre::tests;

namespace {

// A place on both sides of what one message holds, of odd lengths, and of nothing.
const std::vector<std::size_t> counts = {0, 1, 7, 129, 1009, 20011, 262147, 1500007};
const std::vector<std::size_t> few_counts = {1, 129, 1009, 20011};

}  // namespace

TEST_CASE("every collective is right on one GPU, call after call", "[gpu]") {
  const int n = GENERATE(1, 2, 3, 4, 8);
  if (gpu_options().is_short && n != 2) return;
  OnGpu on;
  Ranks ranks(on, n);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  for (const Collective& one : collectives())
    for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{70001}})
      check_collective(on, ranks, one, count);
  for (const Collective& one : collectives()) check_collective(on, ranks, one, 301);
}

TEST_CASE("every algorithm under every protocol is right for 2, 4 and 8 threads", "[gpu]") {
  OnGpu on;
  CudaSweep sweep;
  sweep.ranks = {2, 4, 8};
  sweep.counts = counts;
  sweep.cases_each = 4;
  sweep.seed = Catch::rngSeed();
  if (gpu_options().is_short) {
    sweep.ranks = {2};
    sweep.counts = few_counts;
    sweep.cases_each = 1;
  }
  check_schedules(on, sweep);
}

TEST_CASE("random operations are right for as long as one likes", "[gpu][soak]") {
  OnGpu on;
  CudaSoak soak;
  soak.ranks = {2, 4, 8};
  soak.counts = gpu_options().is_short ? few_counts : counts;
  soak.operations = gpu_options().is_short ? 20 : gpu_options().soak;
  soak.seed = Catch::rngSeed();
  check_random_operations(on, soak);
}

TEST_CASE("a kernel on a GPU whose peer does not come ends by its deadline", "[gpu]") {
  OnGpu on;
  check_deadline(on, gpu_options().is_short ? 5000 : 300);
}

TEST_CASE("an abort frees a kernel on a GPU whose peer never comes, within a second", "[gpu]") {
  OnGpu on;
  check_abort(on, gpu_options().is_short ? 60 : 1);
}

TEST_CASE("ranks whose calls on a GPU differ are told both calls", "[gpu]") {
  OnGpu on;
  check_mismatch(on);
}

TEST_CASE("what is no memory or no stream of the GPU is refused", "[gpu]") {
  OnGpu on;
  check_refusals(on);
}

// Not here yet: 2 and 4 ranks as processes on one GPU; capture into a graph, and its replay.
