// The path between two GPUs on the PCI bus, as the kernel's device files (sysfs) show it. Used
// where NVML is missing. NVLink is no part of the bus and does not show there.
#pragma once

#include "transports/p2p/gpu_route.h"

#include <string>
#include <string_view>

namespace gyre::p2p {

inline constexpr int no_numa_node = -1;  // as the kernel writes it

// From where two devices are in the tree of devices, for example
// "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:03:00.0": behind a bridge of
// the host, a port, and a switch with a port for each device. `unknown` if that cannot be told.
Path path_between(std::string_view here, std::string_view there, int here_node, int there_node);

// Of devices by their bus ids, in any case of messages. `sysfs`: "/sys", or a captured tree.
Path path_on_bus(const std::string& sysfs, std::string_view here, std::string_view there);

}  // namespace gyre::p2p
