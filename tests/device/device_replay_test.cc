// CUDA graphs over relays: ranks as threads and as processes on devices that cannot reach each
// other, each process over a fake driver of its own. A replay runs no host code but the nodes of
// the graph, so these nodes must bring its messages through.
#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/device/captured_sum.h"
#include "tests/support/device/device_processes.h"

#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace device_replay_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

using Variables = std::map<std::string, std::string>;

std::string begin(DeviceProcess& here, CapturedSum& sum) {
  if (std::string refused = here.init(); !refused.empty()) return refused;
  return sum.capture();
}

std::string without(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos ? "" : "no \"" + word + "\" in: " + text;
}

}  // namespace

TEST_CASE("replays over relays bring every message, ranks as threads and processes",
          "[device][graph]") {
  const int ranks = GENERATE(2, 3);
  const bool threads = GENERATE(true, false);
  const Variables over = GENERATE(over_shm, over_tcp);
  const auto body = [](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    for (int round = 0; round < 4 && wrong.empty(); ++round) wrong = sum.replay(round);
    return wrong.empty() ? sum.call() + here.synchronize() : wrong;  // graphs go first
  };
  check_all(run_processes(apart(threads ? 1 : ranks, threads ? ranks : 1, over), body));
}

// A thread that slept for a minute after it found nothing to do would let every replay run into its
// deadline.
TEST_CASE("a replay wakes a relay that sleeps", "[device][graph]") {
  const bool threads = GENERATE(true, false);
  const auto body = [](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    constexpr std::int64_t minute_ns = 60 * ns_per_s;
    comm::process().device_progress.set_pace({minute_ns, ns_per_ms, minute_ns});
    int replays = 0;
    for (; replays < 5 && wrong.empty(); ++replays) {
      if (!here.meet()) return "no meeting";
      usleep(20'000);  // it sleeps after 50 us
      wrong = sum.replay(replays);
    }
    comm::process().device_progress.set_pace(comm::RelayProgress::default_pace());
    const int told = here.fake.host_calls(),
              wanted = 2 * replays * static_cast<int>(here.comms.size());
    return told == wanted ? wrong : wrong + " host functions: " + std::to_string(told);
  };
  DeviceProcesses all = apart(threads ? 1 : 2, threads ? 2 : 1);
  all.timeout_ms = 5'000;
  check_all(run_processes(all, body));
}

TEST_CASE("graphs over relays go on when their communicators have ended", "[device][graph]") {
  const bool threads = GENERATE(true, false);
  const Variables over = GENERATE(over_shm, over_tcp);
  const auto body = [](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    if (wrong.empty()) wrong = sum.replay(0);
    here.destroy();
    // Some replay while others have not ended theirs yet.
    for (int round = 1; round < 3 && wrong.empty(); ++round) wrong = sum.replay(round);
    if (!here.meet()) return "no meeting";
    for (int round = 3; round < 6 && wrong.empty(); ++round) wrong = sum.replay(round);
    return wrong;  // carry_out finds what is left when the graphs have gone
  };
  check_all(run_processes(apart(threads ? 1 : 3, threads ? 3 : 1, over), body));
}

// Memory is freed when no kernel runs, graphs' included: who frees it asks for each plan's error.
TEST_CASE("plans are there for as long as graphs replay them", "[device][graph]") {
  const auto body = [](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    if (wrong.empty()) wrong = sum.replay(0);
    void* memory = nullptr;
    if (gyreMemAllocOn(&memory, 4096, 0) != gyreSuccess) wrong += gyreGetLastError(nullptr);
    here.destroy();
    if (here.process() == 0) sum.launch();  // waits for the other rank
    if (gyreMemFree(memory) != gyreSuccess) wrong += gyreGetLastError(nullptr);
    usleep(50'000);
    if (!here.meet()) return "no meeting";
    if (here.process() == 1) sum.launch();
    return wrong + here.synchronize();
  };
  check_all(run_processes(apart(2, 1), body));
}

namespace {

void wait_for_it(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) usleep(1'000);
}

int allocations_left(const DeviceProcess& here) { return std::stoi(here.fake.leaks()); }

// A rank that is aborted while a call waits behind other work of its stream: what was wrong.
std::string abort_in_use(DeviceProcess& here, CapturedSum& sum) {
  std::atomic<bool> may_go{false};
  for (loaded::CuStream stream : here.streams)
    (void)here.driver->launch_host(stream, wait_for_it, &may_go);
  std::string wrong = sum.call();
  here.abort();
  may_go = true;
  wrong += here.synchronize();
  return wrong;
}

}  // namespace

TEST_CASE("a rank that was aborted in use gives back its memory once its graphs have gone",
          "[device][graph]") {
  const auto body = [](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = here.init();
    if (wrong.empty()) wrong = sum.call();
    wrong += here.synchronize();
    wrong += abort_in_use(here, sum);
    usleep(500'000);
    const int without_graphs = allocations_left(here);
    wrong += begin(here, sum);
    if (wrong.empty()) wrong = sum.replay(0);
    sum.destroy();
    wrong += abort_in_use(here, sum);
    int left = 0;
    for (int look = 0; look < 1000; ++look) {
      if ((left = allocations_left(here)) <= without_graphs) return wrong;
      usleep(5'000);
    }
    return wrong + fmt::format("{} allocations, and {} without graphs", left, without_graphs);
  };
  check_all(run_processes(apart(1, 2), body));
}

TEST_CASE("a replay whose peer is gone for good is given up, and says so", "[device][graph]") {
  const bool killed = GENERATE(false, true);
  const Variables over = GENERATE(over_shm, over_tcp);
  const std::string file = "/tmp/gyre-replay-" + std::to_string(getpid());
  const auto body = [&](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    if (wrong.empty()) wrong = sum.replay(0);
    here.destroy();
    if (!here.meet()) return "no meeting";
    if (here.process() == 1 && killed) (void)raise(SIGKILL);
    if (here.process() == 1) return wrong;
    // The deadline is a minute, more than this test has: no replay comes to it.
    sum.launch();
    wrong += here.synchronize();
    sum.launch();
    wrong += here.synchronize();
    std::ifstream log(file);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    return wrong + without(text, "graphs of a communicator that has ended do nothing") +
           (killed ? "" : without(text, "rank 1 has left"));
  };
  DeviceProcesses all = apart(2, 1, over);
  all.variables.emplace("GYRE_DEBUG_FILE", file);
  all.timeout_ms = 60'000;
  check_all(run_processes(all, body, killed ? std::vector<int>{1} : std::vector<int>{}));
  (void)unlink(file.c_str());
}

TEST_CASE("a kernel that waits for a relayed rank that has left is an error of its communicator",
          "[device][graph]") {
  const bool replays = GENERATE(true, false);
  const auto body = [=](DeviceProcess& here) -> std::string {
    CapturedSum sum(here);
    std::string wrong = begin(here, sum);
    if (wrong.empty()) wrong = sum.replay(0);
    if (here.process() == 1) return wrong;
    if (replays)
      sum.launch();
    else
      wrong += sum.call();
    const gyreResult_t error = here.await_error();
    const std::string text = gyreGetLastError(here.comms[0]);
    here.abort();
    wrong += here.synchronize() + without(text, "rank 1 has left");
    return error == gyreMismatch ? wrong : wrong + " error " + std::to_string(error);
  };
  DeviceProcesses all = apart(2, 1);
  all.timeout_ms = 60'000;
  check_all(run_processes(all, body));
}

}  // namespace device_replay_test
