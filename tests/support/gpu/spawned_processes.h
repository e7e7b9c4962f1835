// The cases of cuda_process_cases.h, each process this program started anew: a CUDA driver that was
// used before a fork does not work after it.
#pragma once

#include "tests/support/device/cuda_process_cases.h"

namespace gyre::tests {

// What each process complained of.
std::vector<std::string> spawn_processes(const CudaProcessCase& one, ProcessScale scale);

// For main, first of all: the exit code, if this program was started as one of them.
std::optional<int> ran_as_process(int count, char** arguments);

}  // namespace gyre::tests
