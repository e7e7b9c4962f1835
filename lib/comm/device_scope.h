// DeviceScope: while it lives, the device of a communicator is the calling thread's: for all that
// one call asks of the driver. Nothing on host memory.
#pragma once

#include "lib/comm/communicator.h"
#include "lib/cuda/cuda_device.h"
#include "lib/cuda/cuda_stream.h"

#include <optional>

namespace gyre::comm {

class DeviceScope {
 public:
  explicit DeviceScope(const Communicator& communicator) {
    const exec::CudaDevice* const device = communicator.options().device.get();
    if (device != nullptr) scope_.emplace(device->driver(), device->owner());
  }

 private:
  std::optional<loaded::CurrentContext> scope_;
};

}  // namespace gyre::comm
