// Survey: what a process finds out about the path from one of its GPUs to the others of its host.
// The driver knows, for the GPUs that the process sees, whether their memory can be reached. NVML
// knows all GPUs, and what connects them. Without NVML the PCI bus is read, where NVLink does not
// show. Then a limit to NVLink alone is not enforced, because the bus cannot show whether it is
// met.
#pragma once

#include "lib/loaded/cuda.h"
#include "lib/loaded/nvml.h"
#include "transports/p2p/gpu_route.h"

#include <string>
#include <vector>

namespace gyre::p2p {

// What the user allows; see GYRE_P2P_LEVEL, GYRE_P2P_DISABLE and GYRE_TRANSPORT.
struct Limits {
  bool disabled = false;
  Path farthest = Path::interconnect;
};

// One GPU of this process.
struct OwnGpu {
  int ordinal = 0;
  std::string uuid, bus_id;
};

// To all others of the host that can be known of. `nvml` may be null. `sysfs`: where the kernel
// shows its devices.
std::vector<RouteReport> survey(const loaded::CudaDriver& driver, const loaded::Nvml* nvml,
                                const OwnGpu& own, const Limits& limits,
                                const std::string& sysfs = "/sys");

// Whether processes run kernels on that device side by side, and not in turns, by NVIDIA's
// multi-process service. `pipe_directory`: CUDA_MPS_PIPE_DIRECTORY, or null.
bool runs_mps(const loaded::CudaDriver& driver, int ordinal, const char* pipe_directory);

}  // namespace gyre::p2p
