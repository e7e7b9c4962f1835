// Communicators of CUDA devices whose ranks are processes, through the C API, each over a fake
// driver of its own: memory is exported and imported, kernels poll each other's memory for real.
#include "tests/support/device/device_processes.h"

#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/device/cuda_process_cases.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace device_processes_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

std::map<std::string, std::string> with_small_slots(std::map<std::string, std::string> more = {}) {
  more.emplace("GYRE_BUFFSIZE", "4096");
  return more;
}

std::string check_counts(DeviceProcess& here) {
  if (const std::string refused = here.init(); !refused.empty()) return refused;
  for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{5000}})
    if (const std::string wrong = here.check_collectives(count); !wrong.empty()) return wrong;
  return "";
}

// On buffers of 100 elements that `data` keeps by rank of the process.
std::string all_reduce(DeviceProcess& here, const std::vector<std::int32_t*>& data) {
  return here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    return gyreAllReduce(data[place], data[place], 100, gyreInt32, gyreSum, comm, stream);
  });
}

std::string without(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos ? "" : "no \"" + word + "\" in: " + text;
}

}  // namespace

TEST_CASE("every collective of processes on one device is right, call after call", "[device]") {
  const int processes = GENERATE(2, 3, 4);
  check_all(run_processes({.processes = processes, .variables = with_small_slots()}, check_counts));
}

TEST_CASE("what processes do on a GPU is right over fake drivers", "[device]") {
  for (const CudaProcessCase& one : cuda_process_cases(ProcessScale::fake)) {
    INFO(one.name);
    check_all(run_processes(one.all, one.body, one.dying));
  }
}

TEST_CASE("every protocol gives the same between processes", "[device]") {
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  check_all(run_processes(
      {.processes = 3, .variables = with_small_slots({{"GYRE_PROTO", protocol}})}, check_counts));
}

TEST_CASE("the log shows the way to each peer, and how processes share a device", "[device]") {
  const bool mps = GENERATE(true, false);
  char folder[] = "/tmp/gyre-log-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/of.";
  DeviceProcesses all{
      .processes = 2,
      .variables = with_small_slots({{"GYRE_DEBUG", "INFO"}, {"GYRE_DEBUG_FILE", file + "%p"}})};
  all.fake = [=](int) { return FakeCudaOptions{.mps = mps}; };
  const auto body = [=](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    here.destroy();
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    const std::string name = file + std::to_string(getpid());
    std::ifstream log(name);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    (void)unlink(name.c_str());
    const std::string told = mps ? "by MPS" : "without MPS";
    int times = 0;
    for (std::size_t at = text.find(told); at != text.npos; at = text.find(told, at + 1)) ++times;
    // One process tells; it warns once, whatever comes.
    const int expected = here.process() > 0 ? 0 : mps ? 2 : 1;
    return without(text, "0000:10:00.0") + without(text, "CUDA IPC, path LOC") +
           (times == expected ? "" : fmt::format(" '{}' said {} times", told, times));
  };
  check_all(run_processes(all, body));
  CHECK(rmdir(folder) == 0);
}

TEST_CASE("devices are one and the same by UUID, whatever their numbers", "[device]") {
  // What the one calls device 0, the other calls device 1.
  const bool swapped = GENERATE(true, false);
  // Lines are for those who reach each other; a relay carries none.
  DeviceProcesses all{.processes = 2, .variables = with_small_slots({{"GYRE_PROTO", "LL"}})};
  all.fake = [=](int process) {
    FakeCudaOptions options{.devices = 2, .peer_access = false};
    options.visible = process == 0 || !swapped ? std::vector{4, 7} : std::vector{7, 4};
    return options;
  };
  all.device = [](int rank) { return rank; };
  if (swapped) return check_all(run_processes(all, check_counts));
  check_all(run_processes(all, [](DeviceProcess& here) {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    return without(all_reduce(here, {here.allocate(0, 100)}), "some ranks do not share memory");
  }));
}

TEST_CASE("a device that the other process does not see is reached, or the driver says why not",
          "[device]") {
  const bool reaches = GENERATE(true, false);
  DeviceProcesses all{.processes = 2, .variables = with_small_slots()};
  all.fake = [=](int process) {
    return FakeCudaOptions{.peer_access = reaches, .visible = {process}};
  };
  if (reaches) return check_all(run_processes(all, check_counts));
  check_all(run_processes(all, [](DeviceProcess& here) {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    return without(all_reduce(here, {here.allocate(0, 100)}), "cuIpcOpenMemHandle");
  }));
}

TEST_CASE("processes on MIG instances of one GPU exchange through their host", "[device]") {
  DeviceProcesses all{.processes = 2, .variables = with_small_slots()};
  all.fake = [](int process) {
    return FakeCudaOptions{.peer_access = false, .visible = {process}, .mig = true};
  };
  check_all(run_processes(all, check_counts));
}

TEST_CASE("memory that a slower peer still has open stays until it has let go", "[device]") {
  const auto body = [](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    std::string failed = all_reduce(here, {here.allocate(0, 100)});
    failed += here.synchronize();
    if (!failed.empty()) return failed;
    here.free_all();
    if (here.process() == 0) here.destroy();
    if (!here.meet()) return "no meeting";
    std::string wrong;
    // Beside what belongs to the device.
    if (here.process() == 0) wrong = without(here.fake.leaks(), "2 allocations");
    return here.meet() ? wrong : "no second meeting";
  };
  check_all(run_processes({.processes = 2, .variables = with_small_slots()}, body));
}

TEST_CASE("a message that names no memory is an error that names its writer", "[device]") {
  const std::size_t bytes = GENERATE(0, 32, 100);
  const auto body = [=](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    if (here.process() == 1) {
      auto pin = comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(here.comms[0]));
      for (std::uint64_t channel = 0; channel < 4; ++channel)
        (void)pin->membership().send(0, 4ULL << 56 | channel, control::MessageBytes(bytes, 0x5a));
    }
    const std::string error = all_reduce(here, {here.allocate(0, 100)});
    return without(error, "its message names no memory of a link") + without(error, "rank 1");
  };
  check_all(run_processes({.processes = 2, .variables = with_small_slots()}, body));
}

TEST_CASE("want of memory at any allocation of a process is an error for all, and nothing leaks",
          "[device]") {
  int failing = 0;
  for (bool through = false; !through; ++failing) {
    const auto body = [=](DeviceProcess& here) -> std::string {
      const std::vector<std::int32_t*> data{here.allocate(0, 100)};
      if (here.process() == 1) here.fake.fail_allocation(failing + 1);
      std::string error = here.init();
      if (error.empty()) error = all_reduce(here, data);
      here.fake.fail_allocation(0);
      if (error.empty()) return here.synchronize() + "through";
      // Who fails before it joins is only missed by the others.
      return without(error, here.process() == 1 ? "CUDA_ERROR_OUT_OF_MEMORY" : "rank 1");
    };
    const auto complaints = run_processes(
        {.processes = 2, .variables = with_small_slots({{"GYRE_INIT_TIMEOUT", "2"}})}, body);
    INFO("allocation " << failing + 1);
    through = complaints == std::vector<std::string>(2, "through");
    if (!through) check_all(complaints);
    REQUIRE(failing < 100);
  }
  CHECK(failing > 3);  // words, pool, the peer's memory
}

}  // namespace device_processes_test
