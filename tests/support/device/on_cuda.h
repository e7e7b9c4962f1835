// A driver's table and its first device, for the cases of CUDA communicators. The device is current
// in the constructing thread. The driver is the fake (device_ranks.h) or the machine's own
// (gpu_driver.h). Memory is filled and read by copies alone, so that cases need not know which.
#pragma once

#include "lib/loaded/cuda.h"
#include "tests/support/catch.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace gyre::tests {

class OnCuda {
 public:
  explicit OnCuda(std::unique_ptr<const loaded::CudaDriver> table) : driver(std::move(table)) {
    REQUIRE(driver->primary_retain(&owner, 0) == loaded::cu::success);
    REQUIRE(driver->set_current(owner) == loaded::cu::success);
    REQUIRE(driver->stream_create(&copies_, loaded::cu::stream_non_blocking) ==
            loaded::cu::success);
  }
  ~OnCuda() { leave(); }
  OnCuda(const OnCuda&) = delete;
  OnCuda& operator=(const OnCuda&) = delete;

  void write(loaded::CuDevicePointer to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    REQUIRE(driver->copy_to_device(to, from, bytes, copies_) == loaded::cu::success);
    REQUIRE(driver->stream_synchronize(copies_) == loaded::cu::success);
  }
  void read(void* to, loaded::CuDevicePointer from, std::size_t bytes) const {
    if (bytes == 0) return;
    REQUIRE(driver->copy_to_host(to, from, bytes, copies_) == loaded::cu::success);
    REQUIRE(driver->stream_synchronize(copies_) == loaded::cu::success);
  }

  std::unique_ptr<const loaded::CudaDriver> driver;
  loaded::CuContext owner = nullptr;

 protected:
  void leave() {
    if (owner == nullptr) return;
    (void)driver->stream_destroy(copies_);
    (void)driver->set_current(nullptr);
    (void)driver->primary_release(0);
    owner = nullptr;
  }

 private:
  loaded::CuStream copies_ = nullptr;
};

// Memory of the current device.
class DeviceBytes {
 public:
  DeviceBytes(const OnCuda& on, std::size_t bytes) : on_(&on) {
    REQUIRE(on.driver->allocate(&memory_, bytes) == loaded::cu::success);
  }
  ~DeviceBytes() {
    if (memory_ != 0) (void)on_->driver->free(memory_);
  }
  DeviceBytes(DeviceBytes&& other) noexcept
      : on_(other.on_), memory_(std::exchange(other.memory_, 0)) {}
  loaded::CuDevicePointer address() const { return memory_; }

 private:
  const OnCuda* on_;
  loaded::CuDevicePointer memory_ = 0;
};

}  // namespace gyre::tests
