// NVML without a GPU, for the fake driver's devices: it fills the table of lib/loaded/nvml.h. One
// at a time.
#pragma once

#include "lib/loaded/nvml.h"

#include <functional>
#include <memory>
#include <vector>

namespace gyre::tests {

// What lies between two GPUs, by their numbers on the machine.
struct FakeBetween {
  bool p2p = true;
  int level = loaded::nvml::topology_system;
  unsigned lanes = 0;  // of NVLink, straight
};

struct FakeNvmlOptions {
  std::vector<int> gpus = {0, 1};  // their numbers on the machine
  std::function<FakeBetween(int, int)> between = [](int, int) { return FakeBetween{}; };
  std::function<unsigned(int)> switch_lanes = [](int) { return 0U; };     // of NVLink, to a switch
  std::function<unsigned(int)> processor_lanes = [](int) { return 0U; };  // of C2C, the last is off
};

class FakeNvml {
 public:
  explicit FakeNvml(FakeNvmlOptions options);
  ~FakeNvml();
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;
  std::unique_ptr<const loaded::Nvml> table() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gyre::tests
