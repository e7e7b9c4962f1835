// Devices: whether this process's ranks work on CUDA devices, on which ones, and their names.
#pragma once

#include "bench/runner/memory.h"
#include "bench/runner/options.h"

#include <functional>
#include <memory>
#include <string>

namespace gyre::bench {

// The machine's driver; the tests give another.
using DriverSource = std::function<Result<std::unique_ptr<const loaded::CudaDriver>>()>;
Result<std::unique_ptr<const loaded::CudaDriver>> machine_driver();

struct DeviceFacts {
  int ordinal = -1;  // in its process; -1: host memory
  bool shares_by_mps = false;
  std::string bus = "0000:00:00";
  std::string name = "host memory";
  std::string uuid;  // the same in all processes; empty: none
};

class Devices {
 public:
  // What --device asks for; without it, what a communicator takes that is not told. Nothing where
  // that is host memory.
  static Result<std::unique_ptr<Devices>> find(DeviceKind wanted, const DriverSource& source);

  // By numbers that go round: several ranks may have one device.
  Result<DeviceFacts> facts(int number) const;
  Result<std::unique_ptr<Memory>> memory(int ordinal) const;

 private:
  Devices(std::unique_ptr<const loaded::CudaDriver> driver, int count)
      : driver_(std::move(driver)), count_(count) {}
  std::unique_ptr<const loaded::CudaDriver> driver_;
  int count_;
};

// GYRE_TESTS_DEVICE: the number of the first rank's device in this process; else `absent`.
Result<int> first_device(int absent);

}  // namespace gyre::bench
