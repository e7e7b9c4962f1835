// The share of a GPU that communicators of several processes take, over the fake driver. Processes
// begin before this one has threads.
#include "tests/support/catch.h"
#include "tests/support/device/device_processes.h"

#include <fstream>
#include <iterator>
#include <unistd.h>

namespace device_share_processes_test {

using namespace gyre;
using namespace gyre::tests;

TEST_CASE("what a process holds is counted by those it joins with", "[device]") {
  DeviceProcesses all{.processes = 2};
  all.variables = {{"GYRE_BUFFSIZE", "4096"}};
  all.fake = [](int) { return FakeCudaOptions{.multiprocessors = 32}; };
  const bool fits = GENERATE(true, false);
  const auto body = [=](DeviceProcess& here) -> std::string {
    // Of its own alone, on the same GPU as the other process: four blocks each.
    std::vector<gyreComm_t> own(here.process() == 0 ? (fits ? 5 : 6) : 0, nullptr);
    for (gyreComm_t& comm : own) {
      gyreUniqueId id;
      gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
      config.device = 0;
      config.maxCTAs = 1;
      if (gyreGetUniqueId(&id) != gyreSuccess ||
          gyreCommInitRankConfig(&comm, 1, id, 0, &config) != gyreSuccess)
        return gyreGetLastError(nullptr);
    }
    if (!here.meet()) return "no meeting";
    std::string refused = here.init();
    for (gyreComm_t comm : own) (void)gyreCommDestroy(comm);
    if (!fits) {
      const bool told = refused.find("6 communicators hold 24 of 30") != std::string::npos;
      return told ? "" : "not refused: " + refused;
    }
    return refused.empty() ? here.check_collectives(300) : refused;
  };
  for (const std::string& complaint : run_processes(all, body)) CHECK(complaint == "");
}

TEST_CASE("more streams than run side by side are worth a warning, across communicators",
          "[device]") {
  const std::string file = "/tmp/gyre-share-" + std::to_string(getpid());
  DeviceProcesses all{.processes = 1, .ranks_each = 2};
  all.variables = {{"GYRE_BUFFSIZE", "4096"}, {"GYRE_DEBUG_FILE", file}};
  all.fake = [](int) { return FakeCudaOptions{.multiprocessors = 132}; };
  const auto body = [&](DeviceProcess& here) -> std::string {
    std::vector<std::vector<gyreComm_t>> others(4, std::vector<gyreComm_t>(2));
    const auto log = [&] {
      std::ifstream text(file);
      return std::string{std::istreambuf_iterator<char>(text), {}};
    };
    const int devices[] = {0, 0};
    for (auto& pair : others)
      if (gyreCommInitAll(pair.data(), 2, devices) != gyreSuccess) return gyreGetLastError(nullptr);
    if (log().find("side by side") != std::string::npos) return "too early: " + log();
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    for (auto& pair : others)
      for (gyreComm_t comm : pair) (void)gyreCommDestroy(comm);
    const bool told = log().find("10 ranks of 5 communicators") != std::string::npos &&
                      log().find("CUDA_DEVICE_MAX_CONNECTIONS to 10") != std::string::npos;
    return told ? "" : "no warning in: " + log();
  };
  CHECK(run_processes(all, body)[0] == "");
  (void)unlink(file.c_str());
}

}  // namespace device_share_processes_test
