// Communicators of CUDA devices on a GPU, with the library that users link: the cases that other
// tests run over the fake driver. Ranks are threads of this process, or processes, all on device 0.
// Exit code 77 without a GPU. gpu_on_fake_test is the same program over the fake driver.
#include "tests/support/device/cuda_cases.h"
#include "tests/support/device/cuda_graph_cases.h"
#include "tests/support/device/cuda_memory_cases.h"
#include "tests/support/gpu/gpu_driver.h"
#include "tests/support/gpu/gpu_main.h"
#include "tests/support/gpu/spawned_processes.h"
#include "tests/support/kernels/device_cases.h"
#include "tests/support/kernels/kernel_job.h"

#include <chrono>
#include <cstdio>

namespace gpu_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

// A place on both sides of what one message holds, of odd lengths, and of nothing.
const std::vector<std::size_t> counts = {0, 1, 7, 129, 1009, 20011, 262147, 1500007};
const std::vector<std::size_t> few_counts = {1, 129, 1009, 20011};

// Of graphs: several slots long, or one where tools make everything slow.
std::size_t graph_count() { return gpu_options().is_short ? 3000 : 300'000; }

// Calls of the kernels on links of the test's own. A launch for each rank only where kernels run
// side by side: not under compute-sanitizer.
void check_kernels(const std::vector<KernelForm>& forms) {
  OnGpu on;
  auto opened = exec::CudaDevice::open(*on.driver, 0, gpu_images());
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  const exec::CudaDevice& device = **opened;
  KernelMemory memory(on, 64 << 20);
  const std::vector<DeviceCase> cases = covering_cases(rng_seed());
  const std::size_t stride = gpu_options().is_short ? 24 : 1;
  std::size_t tried = 0;
  for (std::size_t i = rng_seed() % stride; i < cases.size(); i += stride) {
    if (i / stride % gpu_options().shares != gpu_options().share) continue;
    KernelJob job(on, device, memory, cases[i]);
    if (job.blocks() > device.max_blocks()) continue;
    ++tried;
    for (const std::uint32_t threads :
         {std::min(cases[i].threads, device.threads()), device.threads()})
      for (const KernelForm form : forms) {
        const std::string wrong = job.run(form, threads);
        INFO(cases[i].shown() << (form == KernelForm::one_grid ? ": one grid of " : ": grids of ")
                              << threads << " threads: " << wrong);
        REQUIRE(wrong.empty());
      }
  }
  CHECK(tried * gpu_options().shares > 10);
}

// In short, of two alone.
void check_threads(int ranks) {
  const bool is_short = gpu_options().is_short;
  if (is_short && ranks != 2) return;
  OnGpu on;
  CudaSweep sweep;
  sweep.ranks = {ranks};
  sweep.counts = is_short ? few_counts : counts;
  sweep.cases_each = is_short ? 1 : 2;
  sweep.seed = rng_seed();
  check_schedules(on, sweep);
}

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

TEST_CASE("every algorithm under every protocol is right for 2 threads", "[gpu]") {
  check_threads(2);
}
TEST_CASE("every algorithm under every protocol is right for 4 threads", "[gpu]") {
  check_threads(4);
}
TEST_CASE("every algorithm under every protocol is right for 8 threads", "[gpu]") {
  check_threads(8);
}

TEST_CASE("kernels of all ranks in one grid give the host's bits on a GPU",
          "[gpu][kernels][one_grid]") {
  check_kernels({KernelForm::one_grid});
}

TEST_CASE("kernels of a grid for each rank, and of one for all, take turns on a GPU",
          "[gpu][kernels]") {
  check_kernels({KernelForm::launch_each, KernelForm::one_grid});
}

TEST_CASE("random operations are right for as long as one likes", "[gpu][soak]") {
  OnGpu on;
  CudaSoak soak;
  soak.ranks = {2, 4, 8};
  soak.counts = gpu_options().is_short ? few_counts : counts;
  soak.operations = gpu_options().is_short ? 20 : gpu_options().soak;
  soak.seed = rng_seed();
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

TEST_CASE("calls are right on a GPU's memory of gyreMemAlloc", "[gpu]") {
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  OnGpu on;
  const WithVariables variables({{"GYRE_PROTO", protocol}});
  check_allocated_memory(on, 3, gpu_options().is_short ? 3000 : 1'500'007);
}

TEST_CASE("a GPU's memory is mapped twice by a descriptor, and lasts as long", "[gpu]") {
  OnGpu on;
  check_shared_memory(on, gpu_options().is_short ? 100'001 : 50'000'001);
}

TEST_CASE("opening memory on a GPU waits for no kernel", "[gpu]") {
  if (gpu_is_harsh()) return;
  OnGpu on;
  check_opening_beside_kernels(on, gpu_options().is_short ? 60 : 5);
}

TEST_CASE("a graph's calls run at each of many replays, the first call captured", "[gpu][graph]") {
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  const int n = GENERATE(2, 4, 8);
  if (gpu_options().is_short && n != 2) return;
  OnGpu on;
  const WithVariables variables({{"GYRE_PROTO", protocol}});
  check_captured_call(on, n, graph_count(), gpu_options().is_short ? 3 : 100);
}

TEST_CASE("replays and calls may follow one another on a GPU's stream", "[gpu][graph]") {
  OnGpu on;
  check_replays_among_calls(on, graph_count(), 12);
}

TEST_CASE("a GPU's graph takes groups, sends, receives and uneven blocks", "[gpu][graph]") {
  OnGpu on;
  check_captured_group(on, graph_count(), 8);
}

TEST_CASE("calls of one capture on several streams of a GPU keep their order", "[gpu][graph]") {
  OnGpu on;
  check_captured_streams(on, graph_count());
}

TEST_CASE("a graph on a GPU outlives its communicator", "[gpu][graph]") {
  OnGpu on;
  check_graph_stays_usable(on, graph_count());
}

TEST_CASE("an abort frees replayed kernels on a GPU within a second", "[gpu][graph]") {
  OnGpu on;
  check_abort_of_replay(on, graph_count(), gpu_options().is_short ? 60 : 1);
}

TEST_CASE("a replay that a rank leaves out ends by its deadline on a GPU", "[gpu][graph]") {
  OnGpu on;
  check_replay_left_out(on, graph_count(), gpu_options().is_short ? 5000 : 300);
}

TEST_CASE("the default stream of a GPU is refused during a capture", "[gpu][graph]") {
  OnGpu on;
  check_default_stream_in_capture(on, graph_count());
}

TEST_CASE("a failed capture on a GPU leaves the communicator whole", "[gpu][graph]") {
  OnGpu on;
  check_spoiled_capture(on, graph_count());
}

// How processes share a GPU is the machine's choice; the cases are right under both.
TEST_CASE("ranks as processes on one GPU are right, and who dies is named", "[gpu][processes]") {
  const ProcessScale scale = gpu_is_fake()            ? ProcessScale::fake
                             : gpu_options().is_short ? ProcessScale::brief
                                                      : ProcessScale::whole;
  {
    OnGpu on;
    int mps = 0;
    REQUIRE(on.driver->device_attribute(&mps, loaded::cu::mps_enabled, 0) == loaded::cu::success);
    WARN("processes share the GPU " << (mps != 0 ? "side by side (MPS)" : "in turns (no MPS)"));
  }
  for (const CudaProcessCase& one : cuda_process_cases(scale)) {
    const auto began = std::chrono::steady_clock::now();
    const std::vector<std::string> complaints = spawn_processes(one, scale);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("%s: %.1f s\n", one.name.c_str(), took.count());
    std::fflush(stdout);
    for (std::size_t process = 0; process < complaints.size(); ++process) {
      INFO(one.name << ", process " << process);
      CHECK(complaints[process] == "");
    }
  }
}

}  // namespace gpu_test
