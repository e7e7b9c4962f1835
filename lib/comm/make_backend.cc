#include "lib/comm/make_backend.h"

#include "lib/comm/communicator_state.h"
#include "lib/comm/device_backend.h"
#include "lib/comm/host_backend.h"

namespace gyre::comm {

Result<std::unique_ptr<Backend>> make_backend(CommunicatorState& state, const Services& services,
                                              control::ControlPlane& plane,
                                              const trust::UniqueId& id) {
  GYRE_ASSIGN(std::unique_ptr<HostBackend> host, HostBackend::make(state, services, plane, id));
  if (state.options.device == nullptr) return std::unique_ptr<Backend>(std::move(host));
  return std::unique_ptr<Backend>(std::make_unique<DeviceBackend>(
      state, services.devices, plane.tickets(), trust::short_name(id), std::move(host)));
}

}  // namespace gyre::comm
