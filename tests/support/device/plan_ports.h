// Ports for the rings of ranks in one process, as a search might have planned them.
#pragma once

#include "lib/links/planned_ports.h"
#include "tests/support/device/device_processes.h"

namespace gyre::tests {

// Of both ranks of this process: they have nothing open yet.
void plan_ports(DeviceProcess& here, const comm::PlannedPorts& ports);

}  // namespace gyre::tests
