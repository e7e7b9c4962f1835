// Ranks as processes (cuda_processes.h), each over a fake driver of its own. They are forked while
// the test has one thread and has not used Gyre.
#pragma once

#include "tests/support/cuda_processes.h"

namespace gyre::tests {

struct FakeOfProcess {
  FakeCuda fake;  // before CudaProcess asks it
};

class DeviceProcess : public FakeOfProcess, public CudaProcess {
 public:
  DeviceProcess(const DeviceProcesses& all, int process, const ProcessBoard& board);
};

// Runs `body` in all of them; what it returned, by process, and empty for those in `dying`, which
// must have died of SIGKILL.
std::vector<std::string> run_processes(const DeviceProcesses& all,
                                       const std::function<std::string(DeviceProcess&)>& body,
                                       const std::vector<int>& dying = {});

}  // namespace gyre::tests
