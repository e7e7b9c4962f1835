#include "tests/support/device/described_devices.h"

#include "lib/comm/host_backend.h"
#include "lib/comm/process.h"
#include "lib/topology/hwloc_xml.h"
#include "tests/support/device/device_ranks.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <unistd.h>
#include <vector>

namespace gyre::tests {

std::string fake_bus_id(int device) { return fmt::format("0000:{:02x}:00.0", device + 16); }

topology::Topology with_fake_devices(topology::Topology machine) {
  const std::vector<int> gpus = machine.all(topology::NodeKind::gpu);
  for (topology::TopologyNode& node : machine.nodes)
    if (!node.bus_id.empty()) node.bus_id.replace(0, 4, "0001");  // whatever else is called so
  for (std::size_t i = 0; i < gpus.size(); ++i)
    machine.nodes[static_cast<std::size_t>(gpus[i])].bus_id =
        fake_bus_id(static_cast<int>(gpus.size() - 1 - i));
  return machine;
}

TopologyFile::TopologyFile(const topology::Topology& machine)
    : path_(fmt::format("/tmp/gyre-rings-{}-{}.xml", getpid(), ++made_)) {
  std::ofstream(path_) << write_hwloc_xml(machine);
}

TopologyFile::~TopologyFile() { std::remove(path_.c_str()); }

std::span<const plan::Plan> all_reduce_plans(gyreComm_t comm) {
  const auto pin = comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm));
  auto& host = dynamic_cast<comm::HostBackend&>(pin->backend().on_host());
  comm::Request request;
  request.count = 1 << 20;
  const auto chosen = host.plans().choose(request, device_resources(*pin).tuning());
  return chosen.ok() ? chosen->by_channel : std::span<const plan::Plan>();
}

}  // namespace gyre::tests
