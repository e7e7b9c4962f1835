// Cases of ranks as processes that run alike over fake drivers and on a GPU. Each has a name, so
// that a newly started process can be told its case.
#pragma once

#include "tests/support/device/cuda_processes.h"

#include <optional>
#include <span>

namespace gyre::tests {

struct CudaProcessCase {
  std::string name;
  DeviceProcesses all;
  std::function<std::string(CudaProcess&)> body;
  std::vector<int> dying = {};
};

// How large and how patient, which all processes of a case have to know alike.
enum class ProcessScale { fake, brief, whole };
std::vector<CudaProcessCase> cuda_process_cases(ProcessScale scale);

}  // namespace gyre::tests
