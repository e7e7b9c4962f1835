// GpuNics: which ports of NICs are near enough to a rank's GPU to read and write its memory
// (GYRE_NET_GDR_LEVEL). The host's topology says where both are; it is asked when somebody needs
// it.
#pragma once

#include "lib/base/settings.h"
#include "lib/comm/host_machine.h"
#include "lib/topology/paths.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace gyre::comm {

// The communicator's thread alone.
class GpuNics {
 public:
  using FindNvml = std::function<Result<const loaded::Nvml*>()>;
  // `bus_id`: the GPU's. The machine outlives it.
  GpuNics(HostMachine& machine, FindNvml nvml, const Settings& settings, std::string bus_id);

  // Of "mlx5_0:1"; empty: it is near enough.
  const std::string& why_too_far(std::string_view port);

 private:
  std::string judge(std::string_view port) const;
  topology::PathClass path_to(std::string_view port) const;

  HostMachine& machine_;
  const FindNvml nvml_;
  const std::string topology_file_, level_, bus_id_;
  std::map<std::string, std::string, std::less<>> known_;  // by port
};

}  // namespace gyre::comm
