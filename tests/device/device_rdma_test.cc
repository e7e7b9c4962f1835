// Communicators of a process that uses CUDA, over RDMA: fake GPUs and fake NICs in one process,
// ranks as threads.
#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/device/device_processes.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

using namespace gyre;
using namespace gyre::tests;

namespace {

// Ranks whose GPUs do not reach each other, and whose messages cross by NICs.
DeviceProcesses over_rdma() {
  return apart(1, 2, {{"GYRE_TRANSPORT", "rdma"}, {"GYRE_TIMEOUT", "60"}});
}

// Relays go on for a while after their communicator.
std::string what_is_left(const FakeVerbs& fake) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!fake.live().empty() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return fake.live();
}

}  // namespace

TEST_CASE("relays over NICs outlive their communicator, and give back what they had", "[device]") {
  check_all(run_processes(over_rdma(), [](DeviceProcess& here) -> std::string {
    FakeVerbs fake(two_nics());
    comm::process().verbs.use(&fake.table());
    for (int turn = 0; turn < 2; ++turn) {
      if (const std::string refused = here.init(); !refused.empty()) return refused;
      const std::string wrong = here.check_collectives(5000);
      if (!wrong.empty()) return wrong;
      if (fake.bytes_by("fake0") == 0) return "nothing went by a NIC";
      here.destroy();
      // It is told of by all who watch the memory of the process.
      void* memory = nullptr;
      if (gyreMemAllocOn(&memory, 4096, GYRE_DEVICE_HOST) != gyreSuccess ||
          gyreMemFree(memory) != gyreSuccess)
        return gyreGetLastError(nullptr);
    }
    const std::string left = what_is_left(fake);
    if (!left.empty()) return "left: " + left;
    comm::process().verbs.use(nullptr);
    return "";
  }));
}
