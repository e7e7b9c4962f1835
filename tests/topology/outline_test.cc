// Outlines of machines: searches find on them what they find on the machines, and they are small
// and free of what makes equal machines differ.
#include "lib/topology/outline.h"

#include "lib/topology/channels.h"
#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <string>
#include <vector>

namespace outline_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

std::vector<std::vector<int>> orders(const FoundChannels& found) {
  std::vector<std::vector<int>> all;
  for (const FoundChannel& channel : found.channels) all.push_back(channel.order);
  return all;
}

// Names of the ports that channels cross by.
std::vector<std::string> port_names(const Topology& machine, const FoundChannels& found) {
  std::vector<std::string> names;
  for (const FoundChannel& channel : found.channels)
    for (const HostCrossing& crossing : channel.crossings)
      names.push_back(machine.node(crossing.from_port).name + " to " +
                      machine.node(crossing.to_port).name);
  return names;
}

}  // namespace

TEST_CASE("searches find on an outline what they find on the machine", "[topology]") {
  int machines = 0;
  for (const std::string& name : tests::machine_names()) {
    Topology machine = tests::described_machine(name);
    machine.nodes[0].name.clear();  // reasons name it
    const std::vector<int> gpus = machine.all(NodeKind::gpu);
    if (gpus.empty()) continue;
    ++machines;
    const Topology less = outline(machine);
    CHECK(check(less).ok());
    CHECK(outline(less) == less);
    CHECK(less.nodes.size() < machine.nodes.size() + 1);
    for (const int hosts : {1, 2, 3}) {
      CAPTURE(name, hosts);
      const Result<FoundChannels> there = find_rings(equal_hosts(machine, hosts, gpus));
      const Result<FoundChannels> here =
          find_rings(equal_hosts(less, hosts, less.all(NodeKind::gpu)));
      REQUIRE(there.ok());
      REQUIRE(here.ok());
      CHECK(orders(*here) == orders(*there));
      CHECK(port_names(less, *here) == port_names(machine, *there));
      CHECK(reason_text(*here) == reason_text(*there));
    }
  }
  CHECK(machines >= 9);
}

TEST_CASE("equal machines have equal outlines, whatever they are called", "[topology]") {
  const Topology one = tests::described_machine("hgx_h100");
  Topology other = one;
  other.nodes[0].name = "another";
  other.nodes[0].processors.insert(100'000);
  for (TopologyNode& node : other.nodes) {
    if (node.gpu) node.gpu->uuid = "GPU-other";
    if (node.port) node.port->guid = "0xother";
    if (node.port) node.port->addresses = {"192.0.2.1"};
    if (node.processor) node.processor->name = "another name";
  }
  CHECK(outline(one) == outline(other));
  // A port that is down is another machine.
  other.nodes[static_cast<std::size_t>(other.all(NodeKind::port).front())].port->is_up = false;
  CHECK_FALSE(outline(one) == outline(other));
}

TEST_CASE("orders matter where there are NVLinks or several ports", "[topology]") {
  for (const char* const name : {"hgx_h100", "workstation_2", "pcie_8", "cloud_32_nics"})
    CHECK(has_several_ways(tests::described_machine(name)));
  CHECK_FALSE(has_several_ways(tests::described_machine("epyc_9654")));
  Topology alone = outline(tests::described_machine("workstation_2"));
  alone.links.clear();
  CHECK_FALSE(has_several_ways(alone));
}

}  // namespace outline_test
