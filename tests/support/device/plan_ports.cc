#include "tests/support/device/plan_ports.h"

#include "lib/comm/process.h"
#include "tests/support/device/device_ranks.h"

#include <cstddef>
#include <cstdint>

namespace gyre::tests {

void plan_ports(DeviceProcess& here, const comm::PlannedPorts& ports) {
  for (std::size_t place = 0; place < here.comms.size(); ++place) {
    const auto pin =
        comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(here.comms[place]));
    device_resources(*pin).links().relays()->follow({{1 - here.rank(place), ports}});
  }
}

}  // namespace gyre::tests
