// Communicators of a process that uses CUDA, over RDMA: fake GPUs and fake NICs in one process,
// ranks as threads.
#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/device/captured_sum.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace device_rdma_test {

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

TEST_CASE("a replay whose peer's host is silent is given up, and says so", "[device][graph]") {
  const std::string file = "/tmp/gyre-silent-" + std::to_string(getpid());
  DeviceProcesses all = over_rdma();
  all.variables.emplace("GYRE_LIVENESS_TIMEOUT", "1");
  all.variables.emplace("GYRE_DEBUG_FILE", file);
  all.timeout_ms = slowness * 60'000;
  check_all(run_processes(all, [&](DeviceProcess& here) -> std::string {
    FakeVerbs fake;
    comm::process().verbs.use(&fake.table());
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    {
      CapturedSum sum(here);
      std::string wrong = sum.capture();
      if (wrong.empty()) wrong = sum.replay(0);
      here.destroy();
      if (wrong.empty()) wrong = sum.replay(1);
      if (!wrong.empty()) return wrong;
      fake.set_port("fake0", 1, IBV_PORT_DOWN);
      sum.launch();
      // It would come to its deadline after a minute.
      const auto begun = std::chrono::steady_clock::now();
      wrong = here.synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      if (took.count() > slowness * 10) wrong += "given up after " + std::to_string(took.count());
      if (!wrong.empty()) return wrong;
    }
    const std::string left = what_is_left(fake);
    if (!left.empty()) return "left: " + left;
    comm::process().verbs.use(nullptr);
    std::ifstream log(file);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    return text.find("graphs of a communicator that has ended do nothing") == text.npos
               ? "not said: " + text
               : "";
  }));
  (void)unlink(file.c_str());
}

namespace {

constexpr std::size_t count = 1 << 20;

// Of memory of this rank that it registers: `input`, and twice as many behind it.
std::string gather_registered(int rank, const gyreUniqueId& id, std::int32_t* input,
                              const std::function<void()>& joined) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  gyreComm_t comm = nullptr;
  void* handle = nullptr;
  std::int32_t* const output = input + count;
  std::fill_n(input, count, rank + 1);
  const gyreResult_t begun = gyreCommInitRankConfig(&comm, 2, id, rank, &config);
  joined();
  if (begun != gyreSuccess || gyreCommRegister(comm, input, 12 * count, &handle) != gyreSuccess)
    return gyreGetLastError(comm);
  for (int call = 0; call < 2; ++call)
    if (gyreAllGather(input, output, count, gyreInt32, comm, nullptr) != gyreSuccess)
      return gyreGetLastError(comm);
  if (gyreCommDeregister(comm, handle) != gyreSuccess || gyreCommDestroy(comm) != gyreSuccess)
    return gyreGetLastError(comm);
  const bool is_right =
      std::all_of(output, output + count, [](int one) { return one == 1; }) &&
      std::all_of(output + count, output + 2 * count, [](int one) { return one == 2; });
  return is_right ? "" : "wrong data";
}

}  // namespace

TEST_CASE("NICs reach registered memory of malloc, and no managed memory", "[device]") {
  check_all(run_processes(over_rdma(), [](DeviceProcess& here) -> std::string {
    FakeVerbs fake(two_nics());
    comm::process().verbs.use(&fake.table());
    for (const bool is_managed : {false, true}) {
      // The program begins to use CUDA when its communicators are there.
      comm::process().use_cuda(nullptr, {});
      std::barrier all_joined(2, [&here]() noexcept {
        comm::process().use_cuda(here.fake.library_table(), FakeCuda::images());
      });
      const auto joined = [&] { all_joined.arrive_and_wait(); };
      std::vector<std::int32_t> plain(is_managed ? 0 : 6 * count);
      auto* const memory = is_managed
                               ? static_cast<std::int32_t*>(here.fake.allocate_managed(24 * count))
                               : plain.data();
      gyreUniqueId id;
      if (memory == nullptr || gyreGetUniqueId(&id) != gyreSuccess) return "no memory, or no id";
      // The memory may lie where that of the round before lay.
      const std::array before{fake.bytes_from(memory), fake.bytes_from(memory + 3 * count)};
      std::string other;
      std::thread beside([&] { other = gather_registered(1, id, memory + 3 * count, joined); });
      const std::string own = gather_registered(0, id, memory, joined);
      beside.join();
      if (!own.empty() || !other.empty()) return own + other;
      for (std::size_t rank = 0; rank < 2; ++rank)
        if ((fake.bytes_from(memory + 3 * count * rank) == before[rank]) != is_managed)
          return is_managed ? "a NIC reached managed memory" : "registered memory was copied";
      if (is_managed) (void)here.driver->free(reinterpret_cast<loaded::CuDevicePointer>(memory));
    }
    comm::process().verbs.use(nullptr);
    return "";
  }));
}

}  // namespace device_rdma_test
