// Ways between two ranks: which medium reaches, by what, and how wide it is.
#include "lib/topology/transport_path.h"

#include "lib/topology/describe.h"
#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <initializer_list>
#include <string>

namespace transport_path_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

int node_named(const Topology& machine, std::string_view name) {
  for (int i = 0; i < static_cast<int>(machine.nodes.size()); ++i)
    if (short_name(machine.node(i)) == name) return i;
  FAIL("there is no " << name);
  return -1;
}

struct Case {
  std::string machine, from, to;
  bool is_one_host;
  Medium medium;
  std::string text;
};

std::string found(const Case& one) {
  const Topology machine = tests::described_machine(one.machine);
  const RankLocation from{0, &machine, node_named(machine, one.from)};
  const RankLocation to{one.is_one_host ? 0 : 1, &machine, node_named(machine, one.to)};
  const TransportPath path = find_path(from, to, one.medium);
  return (path.exists ? "" : "no: ") + path_text(path);
}

}  // namespace

TEST_CASE("a path has the width of its narrowest part, or says why it is none", "[topology]") {
  for (const Case& one : std::initializer_list<Case>{
           {"hgx_h100", "gpu0", "gpu7", true, Medium::gpu_memory, "NVL, 371 GB/s"},
           {"pcie_8", "gpu0", "gpu7", true, Medium::gpu_memory, "SYS, 10 GB/s"},
           {"hgx_h100", "gpu0", "gpu7", false, Medium::gpu_memory, "no: another host"},
           {"xeon_8480_pair", "core0", "core60", true, Medium::gpu_memory,
            "no: core 0 is not a GPU"},
           {"hgx_h100", "gpu0", "gpu7", true, Medium::host_memory,
            "by the memory of NUMA node 0, 22 GB/s"},
           {"xeon_8480_pair", "core0", "core60", true, Medium::host_memory, "SYS, 22 GB/s"},
           {"xeon_8480_pair", "core0", "core1", true, Medium::host_memory, "CACHE, no figure"},
           {"hgx_h100", "gpu0", "gpu1", false, Medium::host_memory, "no: another host"},
           {"hgx_h100", "gpu0", "gpu7", true, Medium::sockets, "over loopback, no figure"},
           {"hgx_h100", "gpu0", "gpu7", false, Medium::sockets, "by mlx5_0 to mlx5_4, 50 GB/s"},
           {"virtual_machine", "core0", "core1", false, Medium::sockets,
            "by eth0 to eth0, 1.25 GB/s (assumed)"},
           {"hgx_h100", "gpu0", "gpu7", false, Medium::verbs, "by mlx5_0 to mlx5_4, 50 GB/s"},
           {"hgx_h100", "gpu0", "gpu7", true, Medium::verbs, "by mlx5_0 to mlx5_4, 50 GB/s"},
           {"virtual_machine", "core0", "core1", false, Medium::verbs,
            "no: host vm has no RDMA port"},
           {"hgx_h100", "gpu0", "gpu7", true, Medium::ucx, "within the host, no figure"},
           {"hgx_h100", "gpu0", "gpu7", false, Medium::ucx, "by mlx5_0 to mlx5_4, 50 GB/s"},
           {"virtual_machine", "core0", "core1", false, Medium::ucx,
            "by eth0 to eth0, 1.25 GB/s (assumed)"},
           {"hgx_h100", "gpu3", "gpu3", true, Medium::own_memory, "own memory, no figure"},
           {"hgx_h100", "gpu3", "gpu3", false, Medium::own_memory, "no: another rank"}}) {
    CAPTURE(one.machine, one.from, one.to, one.is_one_host);
    CHECK(found(one) == one.text);
  }
}

TEST_CASE("a host without a port that leads on is said to have none", "[topology]") {
  Topology machine = flat_topology("lonely", {});
  TopologyNode nic;
  nic.kind = NodeKind::nic;
  nic.parent = 0;
  TopologyNode port;
  port.kind = NodeKind::port;
  port.name = "docker0";
  port.port.emplace().is_virtual = true;
  port.parent = machine.add(nic);
  machine.add(port);
  const TransportPath path = find_path({0, &machine, 0}, {1, &machine, 0}, Medium::sockets);
  CHECK_FALSE(path.exists);
  CHECK(path.text == "no port of host lonely leads to other hosts");
}

TEST_CASE("a host whose RDMA ports are down is said to have none that is up", "[topology]") {
  Topology machine = flat_topology("lonely", {});
  TopologyNode nic;
  nic.kind = NodeKind::nic;
  nic.parent = 0;
  TopologyNode port;
  port.kind = NodeKind::port;
  port.name = "mlx5_0";
  port.port.emplace().has_verbs = true;
  port.port->is_up = false;
  port.parent = machine.add(nic);
  machine.add(port);
  const TransportPath path = find_path({0, &machine, 0}, {1, &machine, 0}, Medium::verbs);
  CHECK_FALSE(path.exists);
  CHECK(path.text == "RDMA port mlx5_0:1 of host lonely is down");
}

TEST_CASE("of a host that is not known only the own side counts", "[topology]") {
  const Topology machine = tests::described_machine("xeon_8480_pair");
  CHECK(path_text(find_path({0, &machine, 0}, {1, nullptr, 0}, Medium::sockets)) ==
        "by eth0, 12.5 GB/s");
  CHECK(path_text(find_path({0, nullptr, 0}, {1, nullptr, 0}, Medium::sockets)) ==
        "by the network, no figure");
  CHECK(path_text(find_path({0, nullptr, 0}, {0, nullptr, 0}, Medium::host_memory)) ==
        "on one host, no figure");
}

}  // namespace transport_path_test
