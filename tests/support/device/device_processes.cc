#include "tests/support/device/device_processes.h"

#include "lib/comm/process.h"
#include "tests/support/catch.h"

#include <unistd.h>

namespace gyre::tests {

DeviceProcess::DeviceProcess(const DeviceProcesses& all, int process, const ProcessBoard& board)
    : FakeOfProcess{FakeCuda(all.fake(process))}, CudaProcess(all, process, board, fake.table()) {
  comm::process().use_cuda(fake.library_table(), FakeCuda::images());
}

namespace {

// In the child. Everything is given back before it ends; the fake tells what was not.
std::string in_child(const DeviceProcesses& all, int process, const ProcessBoard& board,
                     const std::function<std::string(DeviceProcess&)>& body, bool others_die) {
  DeviceProcess here(all, process, board);
  std::string complaint = carry_out(
      here, [&](CudaProcess&) { return body(here); }, others_die);
  comm::process().use_cuda(nullptr, {});
  if (!here.fake.failure().empty()) complaint += " the fake: " + here.fake.failure();
  if (here.fake.synchronising_calls() > 0)
    complaint += " calls that wait for kernels: " + here.fake.synchronising_shown();
  here.release_contexts();
  if (const std::string leaks = here.fake.leaks(); !leaks.empty()) complaint += " leaks: " + leaks;
  return complaint;
}

}  // namespace

const std::map<std::string, std::string> over_shm = {};
const std::map<std::string, std::string> over_tcp = {{"GYRE_SHM_DISABLE", "1"}};

DeviceProcesses apart(int processes, int ranks_each, std::map<std::string, std::string> variables) {
  variables.emplace("GYRE_BUFFSIZE", "4096");
  variables.emplace("GYRE_P2P_DISABLE", "1");
  DeviceProcesses all{.processes = processes, .ranks_each = ranks_each, .variables = variables};
  all.fake = [](int) { return FakeCudaOptions{.devices = 4}; };
  all.device = [](int rank) { return rank; };
  return all;
}

std::vector<std::string> run_processes(const DeviceProcesses& all,
                                       const std::function<std::string(DeviceProcess&)>& body,
                                       const std::vector<int>& dying) {
  const ProcessBoard board;
  std::vector<int> children;
  for (int process = 0; process < all.processes; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string complaint = in_child(all, process, board, body, !dying.empty());
      board.complain(process, complaint);
      _exit(complaint.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  return collect_processes(all, board, children, dying);
}

void check_all(const std::vector<std::string>& complaints) {
  for (std::size_t process = 0; process < complaints.size(); ++process) {
    INFO("process " << process);
    CHECK(complaints[process] == "");
  }
}

}  // namespace gyre::tests
