// Services: the process-wide objects that communicators use as long as they live (process.h has
// them all). A communicator on host memory uses no DeviceServices.
#pragma once

#include <atomic>
#include <functional>

namespace gyre::loaded {
struct CudaDriver;
class SharedUcp;
class SharedVerbs;
}  // namespace gyre::loaded

namespace gyre::transport {
class RegionTable;
}

namespace gyre::comm {

class HostMachine;
struct DeviceServices;

struct Services {
  transport::RegionTable& regions;   // what gyreMemAlloc gave
  const std::atomic<bool>& is_over;  // exit() was called: who goes now does not leave in peace
  HostMachine& machine;              // the topology of this host
  loaded::SharedVerbs& verbs;        // its RDMA devices
  loaded::SharedUcp& ucp;            // UCX, where a transport of it is used
  const DeviceServices& devices;
  // The driver, if somebody in this process uses it by now; else null.
  std::function<const loaded::CudaDriver*()> cuda_in_use;
};

}  // namespace gyre::comm
