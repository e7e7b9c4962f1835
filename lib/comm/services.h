// Services: the process-wide objects that communicators use as long as they live (process.h has
// them all). A communicator on host memory uses no DeviceServices.
#pragma once

#include <atomic>

namespace gyre::loaded {
class SharedVerbs;
}

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
  const DeviceServices& devices;
};

}  // namespace gyre::comm
