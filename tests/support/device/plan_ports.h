// Ports for the rings of ranks in one process, as a search might have planned them.
#pragma once

#include "lib/comm/process.h"
#include "tests/support/device/device_processes.h"
#include "tests/support/device/device_ranks.h"

#include <cstddef>
#include <cstdint>

namespace gyre::tests {

// Of both ranks of this process: they have nothing open yet.
inline void plan_ports(DeviceProcess& here, const comm::PlannedPorts& ports) {
  for (std::size_t place = 0; place < here.comms.size(); ++place) {
    const auto pin =
        comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(here.comms[place]));
    device_resources(*pin).links().relays()->follow({{1 - here.rank(place), ports}});
  }
}

}  // namespace gyre::tests
