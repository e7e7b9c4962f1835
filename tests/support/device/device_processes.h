// Ranks as processes (cuda_processes.h), each over a fake driver of its own. They are forked while
// the test has one thread and has not used Gyre yet.
#pragma once

#include "tests/support/device/cuda_processes.h"

namespace gyre::tests {

struct FakeOfProcess {
  FakeCuda fake;  // before CudaProcess asks it
};

class DeviceProcess : public FakeOfProcess, public CudaProcess {
 public:
  DeviceProcess(const DeviceProcesses& all, int process, const ProcessBoard& board);
};

// One rank or more in each process, each on a device of its own, none of which reaches another.
DeviceProcesses apart(int processes, int ranks_each,
                      std::map<std::string, std::string> variables = {});
// What relays between them use: `variables` of these.
extern const std::map<std::string, std::string> over_shm, over_tcp;

// Runs `body` in all of them; what it returned, by process, and empty for those in `dying`, which
// must have died of SIGKILL.
std::vector<std::string> run_processes(const DeviceProcesses& all,
                                       const std::function<std::string(DeviceProcess&)>& body,
                                       const std::vector<int>& dying = {});
// None has complained.
void check_all(const std::vector<std::string>& complaints);

}  // namespace gyre::tests
