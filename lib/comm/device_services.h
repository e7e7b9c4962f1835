// DeviceServices: the process-wide objects that communicators on GPUs use.
#pragma once

#include "lib/comm/host_machine.h"
#include "lib/comm/ring_searches.h"
#include "lib/cuda/cuda_device.h"
#include "lib/device/device_allocations.h"
#include "lib/device/device_holdings.h"
#include "lib/device/device_watch.h"
#include "lib/device/relay_progress.h"
#include "lib/loaded/nvml.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace gyre::comm {

struct DeviceServices {
  DeviceHoldings& holdings;   // blocks of each GPU
  DeviceAllocations& memory;  // what gyreMemAlloc gave
  RelayProgress& progress;    // drives relays
  DeviceWatch& watch;         // looks after kernels
  HostMachine& machine;       // the topology of this host
  RingSearches& rings;        // over communicators' hosts
  std::function<Result<const loaded::Nvml*>()> nvml;
  std::function<Result<std::shared_ptr<const exec::CudaDevice>>(int ordinal)> device;
  std::function<bool(const void* stream)> is_host_stream;  // of gyreStreamCreate
};

}  // namespace gyre::comm
