// Paths between the parts of a host: what lies between, how wide it is, and which edges are shared.
#include "lib/topology/paths.h"

#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace paths_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

std::string gpu(int bus, std::string_view inside = "") {
  return fmt::format(
      "<pci busid=\"0000:{:02x}:00.0\" class=\"0x030200\" "
      "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu sm=\"80\">{}</gpu></pci>",
      bus, inside);
}

std::string pci_switch(int bus, const std::string& inside) {
  return fmt::format(
      "<pci busid=\"0000:{:02x}:00.0\" class=\"0x060400\" "
      "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">{}</pci>",
      bus, inside);
}

std::string lanes(int bus, int count) {
  return fmt::format("<nvlink target=\"0000:{:02x}:00.0\" count=\"{}\"/>", bus, count);
}

// A host of two sockets: on the first a switch with two GPUs and, in it, another switch with one;
// a GPU beside them; on the second socket two GPUs with NVLink, one of them joined to its socket.
Topology two_sockets() {
  const std::string first = pci_switch(1, gpu(2) + gpu(3) + pci_switch(4, gpu(5))) + gpu(6);
  const std::string second = gpu(7, lanes(8, 4)) + gpu(8, lanes(7, 4) + "<c2c bw=\"100000\"/>");
  const auto root = parse_xml(fmt::format(
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"1\" vendor=\"AuthenticAMD\" "
      "familyid=\"25\">{}</cpu><cpu numaid=\"1\" affinity=\"2\" vendor=\"AuthenticAMD\" "
      "familyid=\"25\">{}</cpu></system>",
      first, second));
  REQUIRE(root.ok());
  Result<Topology> made = read_nccl_xml(*root);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(made).value();
}

}  // namespace

TEST_CASE("a path has the class and the width of what lies between", "[topology]") {
  struct Case {
    int from, to;
    PathClass kind;
    double gigabytes_per_s;
  };
  const Case one = GENERATE(
      Case{2, 2, PathClass::same, local_gigabytes_per_s}, Case{2, 3, PathClass::one_switch, 31.5},
      Case{2, 5, PathClass::switches, 31.5}, Case{2, 6, PathClass::processor, 31.5},
      Case{2, 7, PathClass::interconnect, 24}, Case{7, 8, PathClass::nvlink, 80});
  INFO(one.from << " to " << one.to);
  const Topology host = two_sockets();
  const auto at = [&](int bus) { return host.find_bus_id(fmt::format("0000:{:02x}:00.0", bus)); };
  const EdgeTable table(host);
  for (const auto& [from, to] : {std::pair(one.from, one.to), std::pair(one.to, one.from)}) {
    const DevicePath path = table.paths_from(at(from))[static_cast<std::size_t>(at(to))];
    CHECK(path_class_name(path.kind) == path_class_name(one.kind));
    CHECK(path.gigabytes_per_s == Approx(one.gigabytes_per_s).epsilon(0.001));
    CHECK(path.nodes.front() == at(from));
    CHECK(path.nodes.back() == at(to));
    CHECK(path.edges.size() + 1 == path.nodes.size());
  }
}

TEST_CASE("a GPU reaches its own processor by the wider of two ways", "[topology]") {
  const Topology host = two_sockets();
  const EdgeTable table(host);
  const int gpu = host.find_bus_id("0000:08:00.0"), numa = host.all(NodeKind::numa_node)[1];
  const DevicePath path = table.paths_from(gpu)[static_cast<std::size_t>(numa)];
  CHECK(path_class_name(path.kind) == "C2C");
  CHECK(path.gigabytes_per_s == Approx(100));
}

TEST_CASE("cores that share a cache are near, and a core reaches a port through its NIC",
          "[topology]") {
  const auto root = parse_xml(R"(<topology version="2.0">
    <object type="Machine" cpuset="0x3"><object type="Package" cpuset="0x3" os_index="0">
      <object type="L3Cache" depth="3" cpuset="0x3"><object type="Core" os_index="0" cpuset="0x1"/>
        <object type="Core" os_index="1" cpuset="0x2"/></object></object>
      <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0200" pci_link_speed="4">
        <object type="OSDev" osdev_type="2" name="eth0"/></object></object></topology>)");
  REQUIRE(root.ok());
  const Result<Topology> host = read_hwloc_xml(*root);
  REQUIRE(host.ok());
  const EdgeTable table(*host);
  const std::vector<int> cores = host->all(NodeKind::core), ports = host->all(NodeKind::port);
  REQUIRE(cores.size() == 2);
  REQUIRE(ports.size() == 1);
  const auto paths = table.paths_from(cores[0]);
  CHECK(path_class_name(paths[static_cast<std::size_t>(cores[1])].kind) == "CACHE");
  CHECK(path_class_name(paths[static_cast<std::size_t>(ports[0])].kind) == "PHB");
  CHECK(paths[static_cast<std::size_t>(ports[0])].gigabytes_per_s == Approx(4));
}

TEST_CASE("paths through one switch share the edge above it, and directions share none",
          "[topology]") {
  const Topology host = two_sockets();
  const EdgeTable table(host);
  const auto edges = [&](const char* from, const char* to) {
    const auto path =
        table.paths_from(host.find_bus_id(from))[static_cast<std::size_t>(host.find_bus_id(to))];
    return std::set<int>(path.edges.begin(), path.edges.end());
  };
  const auto shared = [](const std::set<int>& a, const std::set<int>& b) {
    return std::ranges::count_if(a, [&](int edge) { return b.contains(edge); });
  };
  CHECK(shared(edges("0000:02:00.0", "0000:06:00.0"), edges("0000:03:00.0", "0000:06:00.0")) == 2);
  CHECK(shared(edges("0000:02:00.0", "0000:06:00.0"), edges("0000:06:00.0", "0000:02:00.0")) == 0);
  CHECK(shared(edges("0000:02:00.0", "0000:03:00.0"), edges("0000:05:00.0", "0000:06:00.0")) == 0);
}

TEST_CASE("where a figure is unknown a careful one stands, and says so", "[topology]") {
  Topology host = two_sockets();
  for (TopologyNode& node : host.nodes) node.gigabytes_per_s = 0;
  const EdgeTable table(host);
  const DevicePath path = table.paths_from(
      host.find_bus_id("0000:02:00.0"))[static_cast<std::size_t>(host.find_bus_id("0000:03:00.0"))];
  CHECK(path.gigabytes_per_s == unknown_pci);
  for (const int edge : path.edges) CHECK(table.edges()[static_cast<std::size_t>(edge)].is_guessed);
}

}  // namespace paths_test
