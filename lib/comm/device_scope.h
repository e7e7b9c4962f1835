// DeviceScope: while it lives, the communicator's device is the calling thread's current one, for
// all driver calls of one API call. It does nothing on host memory.
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
