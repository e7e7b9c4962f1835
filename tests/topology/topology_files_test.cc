// hwloc's and NCCL's files: what is read from them, that it comes back, and what is refused.
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/speeds.h"
#include "lib/topology/topology_file.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

namespace topology_files_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

Topology expect(std::string_view text) {
  Result<Topology> made = read_topology(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(made).value();
}

std::string refusal(std::string_view text) {
  const Result<Topology> made = read_topology(text);
  REQUIRE_FALSE(made.ok());
  return std::string(made.status().message());
}

// Two GPUs below a switch beside a NIC of two ports, on one of two NUMA nodes; NVLinks between the
// GPUs and from both to the switches; one GPU joined to its processor.
constexpr std::string_view nccl_file = R"(<system version="1" name="small">
  <cpu numaid="0" affinity="00000000,0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="25"
       modelid="1">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>
          <nvlink target="0000:c7:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:c8:00.0" count="6" tclass="0x068000"/>
          <c2c bw="50000" count="2"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>
          <nvlink target="0000:c7:00.0" count="12" tclass="0x068000"/>
          <nvlink target="0000:99:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/>
          <net name="mlx5_1" dev="1" speed="100000" port="2" guid="0x2" gdr="0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="00000000,ffff0000" arch="x86_64" vendor="AuthenticAMD" familyid="25"
       modelid="1"/>
</system>)";

// A package of two NUMA nodes with an L3 cache each, a memory without processors, and devices.
constexpr std::string_view hwloc_file = R"(<?xml version="1.0"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" nodeset="0x7" gp_index="1">
  <info name="HostName" value="pair"/>
  <object type="Package" os_index="0" cpuset="0x0000000f" gp_index="2">
   <info name="CPUVendor" value="GenuineIntel"/>
   <info name="CPUFamilyNumber" value="6"/>
   <info name="CPUModelNumber" value="143"/>
   <info name="CPUModel" value="Intel Xeon"/>
   <object type="NUMANode" os_index="2" cpuset="0x0" local_memory="64" gp_index="3"/>
   <object type="Group" cpuset="0x00000003" gp_index="4">
    <object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="1024" gp_index="5"/>
    <object type="L3Cache" cpuset="0x00000003" cache_size="32768" depth="3" gp_index="6">
     <object type="L2Cache" cpuset="0x00000001" cache_size="512" depth="2" gp_index="7">
      <object type="Core" os_index="0" cpuset="0x00000001" gp_index="8"/></object>
     <object type="L2Cache" cpuset="0x00000002" cache_size="512" depth="2" gp_index="9">
      <object type="Core" os_index="1" cpuset="0x00000002" gp_index="10"/></object>
    </object>
    <object type="Bridge" bridge_type="0-1" gp_index="20">
     <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.0" pci_link_speed="31.5">
      <object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00"
              pci_link_speed="31.5" gp_index="21">
       <object type="OSDev" name="ib0" osdev_type="2" gp_index="22"/>
       <object type="OSDev" name="mlx5_0" osdev_type="3" gp_index="23">
        <info name="NodeGUID" value="b8:ce"/><info name="Port1State" value="1"/></object>
      </object>
     </object>
     <object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0180 [1af4:1042] [0:0] 01"/>
    </object>
   </object>
   <object type="Group" cpuset="0x0000000c" gp_index="30">
    <object type="NUMANode" os_index="1" cpuset="0x0000000c" local_memory="1024" gp_index="31"/>
    <object type="L3Cache" cpuset="0x0000000c" cache_size="32768" depth="3" gp_index="32">
     <object type="L2Cache" cpuset="0x0000000c" cache_size="512" depth="2" gp_index="33">
      <object type="Core" os_index="2" cpuset="0x00000004" gp_index="34"/>
      <object type="Core" os_index="3" cpuset="0x00000008" gp_index="35"/></object>
    </object>
   </object>
  </object>
  <object type="OSDev" name="eth0" osdev_type="2" gp_index="40"/>
 </object>
</topology>)";

std::vector<std::string> texts(const Topology& topology) {
  std::vector<std::string> found;
  for (const TopologyNode& node : topology.nodes)
    found.push_back(node.parent < 0
                        ? node_text(node)
                        : node_text(node) + " in " + node_text(topology.node(node.parent)));
  return found;
}

}  // namespace

TEST_CASE("NCCL's files are read as they are meant", "[topology]") {
  const Topology made = expect(nccl_file);
  CHECK(texts(made) == std::vector<std::string>{
                           "host small", "NUMA node 0 in host small",
                           "PCIe switch 0000:01:00.0 in NUMA node 0",
                           "GPU 0000:02:00.0 in PCIe switch 0000:01:00.0",
                           "GPU 0000:03:00.0 in PCIe switch 0000:01:00.0",
                           "NIC 0000:04:00.0 in PCIe switch 0000:01:00.0",
                           "port mlx5_0 in NIC 0000:04:00.0", "port mlx5_1 in NIC 0000:04:00.0",
                           "NUMA node 1 in host small", "NVSwitch in host small"});
  CHECK(made.node(3).gpu->capability == 80);
  CHECK(made.node(3).gigabytes_per_s == Approx(31.5).epsilon(0.01));
  CHECK(made.node(6).gigabytes_per_s == Approx(25));
  CHECK(made.node(6).port->has_verbs);
  CHECK(made.node(8).processors.list() == "16-31");
  REQUIRE(made.links.size() == 4);
  CHECK(made.links[0].kind == JointKind::c2c);
  CHECK(made.links[0].gigabytes_per_s == Approx(100));
  CHECK(made.links[1].lanes == 4);
  CHECK(made.links[1].gigabytes_per_s == Approx(80));  // of 20 GB/s each
  CHECK(made.links[2].lanes == 12);
  CHECK(made.links[3].lanes == 12);
}

TEST_CASE("hwloc's files are read as they are meant", "[topology]") {
  const Topology made = expect(hwloc_file);
  CHECK(texts(made) == std::vector<std::string>{
                           "host pair", "package 0 in host pair", "NUMA node 2 in package 0",
                           "NUMA node 0 in package 0", "L3 cache in NUMA node 0",
                           "core 0 in L3 cache", "core 1 in L3 cache",
                           "NIC 0000:02:00.0 in NUMA node 0", "port ib0 in NIC 0000:02:00.0",
                           "port mlx5_0 in NIC 0000:02:00.0", "NUMA node 1 in package 0",
                           "L3 cache in NUMA node 1", "L2 cache in L3 cache", "core 2 in L2 cache",
                           "core 3 in L2 cache", "NIC in host pair", "port eth0 in NIC"});
  CHECK(made.node(1).processor->model == 143);
  CHECK(made.node(4).bytes == 32768);
  CHECK_FALSE(made.node(9).port->is_up);
  CHECK(made.node(9).port->has_verbs);
}

TEST_CASE("what is read from a file is read again from what is written", "[topology]") {
  const std::string_view file = GENERATE(nccl_file, hwloc_file);
  const Topology made = expect(file);
  const std::string again = write_hwloc_xml(made);
  INFO(again);
  CHECK(texts(expect(again)) == texts(made));
  CHECK(expect(again) == made);
  if (file == nccl_file) CHECK(expect(write_nccl_xml(made)) == made);
}

TEST_CASE("processors without a core count as cores, and share caches", "[topology]") {
  const Topology made = expect(
      "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x3\"><object type=\"L2Cache\" "
      "depth=\"2\" cpuset=\"0x3\"><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/>"
      "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\"/></object></object></topology>");
  CHECK(texts(made) == std::vector<std::string>{"host", "L2 cache in host", "core 0 in L2 cache",
                                                "core 1 in L2 cache"});
}

TEST_CASE("contradictory files are refused with the line and the reason", "[topology]") {
  struct Case {
    const char* what;
    std::string text, reason;
  };
  const auto nccl = [](std::string_view inside) {
    return fmt::format(
        "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"1\">\n{}</cpu></system>", inside);
  };
  const auto gpu = [](std::string_view bus, std::string_view inside) {
    return fmt::format("<pci busid=\"{}\" class=\"0x030200\"><gpu sm=\"80\">{}</gpu></pci>\n", bus,
                       inside);
  };
  const Case one = GENERATE_REF(
      Case{"nothing", "", "no XML"}, Case{"no XML", "{}", "line 1: this is no XML"},
      Case{"cut short", "<system version=\"1\"><cpu>", "no XML"},
      Case{"another format", "<graphs/>", "line 1, <graphs>: this is neither hwloc's XML"},
      Case{"another version", "<system version=\"2\"/>", "line 1, <system>: version 2"},
      Case{"a number that is none",
           nccl("<pci busid=\"1:0\" class=\"0x02\"><nic>"
                "<net name=\"a\" speed=\"fast\"/></nic></pci>"),
           "line 3, <net>: speed=\"fast\""},
      Case{"a mask that is none", "<system version=\"1\"><cpu affinity=\"0xg\"/></system>",
           "line 1, <cpu>: \"0xg\" is no mask"},
      Case{"a bus id twice", nccl(gpu("0000:01:00.0", "") + gpu("0000:01:00.0", "")),
           "line 4, <pci>: busid 0000:01:00.0 is there twice"},
      Case{"a bus id with a blank", nccl(gpu("0000:01:0 .0", "")),
           "GPU 0000:01:0 .0 has a bus id with a blank"},
      Case{"ends that differ",
           nccl(gpu("0000:01:00.0", "<nvlink target=\"0000:02:00.0\" count=\"4\"/>") +
                gpu("0000:02:00.0", "<nvlink target=\"0000:01:00.0\" count=\"2\"/>")),
           "line 4, <nvlink>: 2 NVLinks, of which the other end has 4"},
      Case{"a GPU with itself",
           nccl(gpu("0000:01:00.0", "<nvlink target=\"0000:01:00.0\" count=\"4\"/>")),
           "a GPU with an NVLink to itself"},
      Case{"a processor in two cores",
           "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x3\">"
           "<object type=\"Core\" os_index=\"0\" cpuset=\"0x1\"/>"
           "<object type=\"Core\" os_index=\"1\" cpuset=\"0x1\"/></object></topology>",
           "core 1 has a processor of another core"},
      Case{"a child with more than its parent",
           "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\">"
           "<object type=\"Core\" os_index=\"0\" cpuset=\"0x2\"/></object></topology>",
           "core 0 has processors 1, of which host has only 0"},
      Case{"a package in a core",
           "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\">"
           "<object type=\"L3Cache\" depth=\"3\" cpuset=\"0x1\"><object type=\"Package\" "
           "cpuset=\"0x1\"/></object></object></topology>",
           "package cannot lie in L3 cache"},
      Case{"hwloc's version 1", "<topology><object type=\"Machine\"/></topology>", "2 is known"});
  INFO(one.what);
  CHECK_THAT(refusal(one.text), tests::has_text(one.reason));
}

TEST_CASE("huge and deep files end in time with an error", "[topology]") {
  std::string deep = "<topology version=\"2.0\">";
  for (int i = 0; i < 100'000; ++i) deep += "<object type=\"Group\">";
  CHECK_THAT(refusal(deep), tests::has_text("no XML"));
  std::string wide = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"1\">";
  for (int i = 0; i < 70'000; ++i)
    wide += fmt::format("<pci busid=\"{:04x}:{:02x}:00.0\" class=\"0x030200\"/>", i / 256, i % 256);
  CHECK_THAT(refusal(wide + "</cpu></system>"), tests::has_text("more than 65536 parts"));
}

TEST_CASE("speeds of PCIe follow rate, code and width", "[topology]") {
  CHECK(pci_gigabytes_per_s(2.5, 1) == Approx(0.25));
  CHECK(pci_gigabytes_per_s(8, 16) == Approx(15.75).epsilon(0.001));
  CHECK(pci_gigabytes_per_s(16, 16) == Approx(31.5).epsilon(0.001));
  CHECK(pci_gigabytes_per_s(0, 16) == 0);
  CHECK(pci_gigabytes_per_s(16, 0) == 0);
}

}  // namespace topology_files_test
