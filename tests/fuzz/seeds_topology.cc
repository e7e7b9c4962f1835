// Seeds of topology files: small hosts in both formats, and files with a mistake each.
#include "lib/comm/machine_message.h"
#include "lib/topology/topology_file.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

void add_outlines(Seeds& seeds) {
  const Result<topology::Topology> machine = topology::read_topology(
      R"(<system version="1" name="small"><cpu numaid="0" affinity="f" vendor="AuthenticAMD" )"
      R"(familyid="25" modelid="1"><pci busid="0000:01:00.0" class="0x060400" )"
      R"(link_speed="16.0 GT/s PCIe" link_width="16"><pci busid="0000:02:00.0" class="0x030200">)"
      R"(<gpu dev="0" sm="90" gdr="1"><nvlink target="0000:03:00.0" count="4"/></gpu></pci>)"
      R"(<pci busid="0000:03:00.0" class="0x030200"><gpu dev="1" sm="90">)"
      R"(<nvlink target="0000:02:00.0" count="4"/></gpu></pci><pci busid="0000:04:00.0" )"
      R"(class="0x020700"><nic><net name="mlx5_0" speed="200000" port="1" gdr="1"/></nic></pci>)"
      R"(</pci></cpu></system>)");
  const Result<comm::OutlinedMachine> outlined = comm::outline_machine(machine.value());
  const Bytes good = outlined->message;
  const auto add = [&](const char* name, const Bytes& bytes) { seeds.add("outline", name, bytes); };
  add("small", good);
  add("cut", cut(good, good.size() - 3));
  add("too_long", cut(good, good.size() + 1));
  add("nothing", {});
  add("other_version", changed(good, 0, 2));
  add("no_nodes", changed(good, 4, 0));
  add("many_nodes", changed(good, 6, 1));
  add("many_links", changed(good, good.size() - 18, 1));
  add("own_link", changed(good, good.size() - 17, good[good.size() - 13]));
  add("other_joint", changed(good, good.size() - 9, 2));
  add("no_lanes", changed(good, good.size() - 8, 0));
  add("host_in_itself", changed(good, 9, 0));
  add("host_of_a_core", changed(good, 8, 4));
  add("host_of_another_kind", changed(good, 8, 200));
  seeds.add_text("outline", "note", encode(outlined->note));
  seeds.add_text("outline", "note_of_nothing", std::string(33, '0'));
  seeds.add_text("outline", "note_in_capitals", std::string(32, 'A').append("-"));
}

}  // namespace

void add_topology_seeds(Seeds& seeds) {
  add_outlines(seeds);
  const auto add = [&](const char* name, std::string_view text) {
    seeds.add_text("topology", name, text);
  };
  add("locality", "0,1,8,-");
  add("locality_cut", "0,1,");
  add("nccl",
      R"(<system version="1" name="small"><cpu numaid="0" affinity="f" vendor="AuthenticAMD" )"
      R"(familyid="25" modelid="1"><pci busid="0000:01:00.0" class="0x060400" )"
      R"(link_speed="16.0 GT/s PCIe" link_width="16"><pci busid="0000:02:00.0" class="0x030200">)"
      R"(<gpu dev="0" sm="90" gdr="1"><nvlink target="0000:03:00.0" count="4"/>)"
      R"(<nvlink target="ffff:ff:ff.0" count="12" tclass="0x068000"/><c2c bw="50000" count="2"/>)"
      R"(</gpu></pci><pci busid="0000:03:00.0" class="0x030200"><gpu dev="1" sm="90">)"
      R"(<nvlink target="0000:02:00.0" count="4"/></gpu></pci><pci busid="0000:04:00.0" )"
      R"(class="0x020700"><nic><net name="mlx5_0" speed="200000" port="1" guid="0x1" gdr="1"/>)"
      R"(</nic></pci></pci></cpu><cpu numaid="1" affinity="f0"/></system>)");
  add("hwloc",
      R"(<topology version="2.0"><object type="Machine" cpuset="0xf"><info name="HostName" )"
      R"(value="pair"/><info name="GyreLink" value="from=gpu:0000:02:00.0 to=nvswitch:0 )"
      R"(kind=nvlink lanes=18 gigabytes_per_s=371"/><object type="Package" os_index="0" )"
      R"(cpuset="0xf"><info name="CPUVendor" value="GenuineIntel"/><info name="CPUModelNumber" )"
      R"(value="143"/><object type="NUMANode" os_index="0" cpuset="0xf" local_memory="64"/>)"
      R"(<object type="L3Cache" depth="3" cache_size="1024" cpuset="0xf"><object type="L2Cache" )"
      R"(depth="2" cpuset="0x3"><object type="Core" os_index="0" cpuset="0x1"/><object )"
      R"(type="Core" os_index="1" cpuset="0x2"/></object></object><object type="Bridge" )"
      R"(bridge_type="1-1" pci_busid="0000:01:00.0" pci_link_speed="31.5"><object type="PCIDev" )"
      R"(pci_busid="0000:02:00.0" pci_type="0302 [10de:2330]"><info name="GyreGpu" )"
      R"(value="ordinal=0 capability=90 nic_reaches=1 uuid=GPU-1"/></object><object )"
      R"(type="PCIDev" pci_busid="0000:03:00.0" pci_type="0200 [15b3:1]"><object type="OSDev" )"
      R"(name="eth0" osdev_type="2"><info name="GyrePort" value="protocol=ethernet up=1 mtu=9000 )"
      R"(gigabytes_per_s=12.5 addresses=10.0.0.1,fe80::1"/></object></object></object></object>)"
      R"(<object type="Misc"><info name="GyreNvSwitch" value="1"/></object></object></topology>)");
  add("hwloc_ucx",
      R"(<topology version="2.0"><object type="Machine" cpuset="0x1"><info name="GyreUcx" )"
      R"(value="transport=self device=memory dedicated_gigabytes_per_s=19 overhead_us=0.01"/>)"
      R"(<object type="Core" os_index="0" cpuset="0x1"/><object type="OSDev" name="eth0" )"
      R"(osdev_type="2"><info name="GyrePort" value="protocol=ethernet up=1"/><info )"
      R"(name="GyreUcx" value="transport=tcp device=eth0 shared_gigabytes_per_s=1.2 )"
      R"(latency_us=5.2 latency_per_endpoint_us=0.001"/></object></object></topology>)");
  add("hwloc_ucx_twice",
      R"(<topology version="2.0"><object type="Machine" cpuset="0x1"><info name="GyreUcx" )"
      R"(value="transport=self device=memory"/><info name="GyreUcx" )"
      R"(value="transport=self device=memory"/></object></topology>)");
  add("not_xml", "<system version=\"1\"><cpu>");
  add("other_version", "<system version=\"2\"/>");
  add("mask", "<system version=\"1\"><cpu affinity=\"0xg,1\"/></system>");
  add("twice", R"(<system version="1"><cpu affinity="1"><pci busid="1:0.0" class="0x02"/>)"
               R"(<pci busid="1:0.0" class="0x02"/></cpu></system>)");
  add("core_twice",
      R"(<topology version="2.0"><object type="Machine" cpuset="0x1"><object type="Core" )"
      R"(cpuset="0x1"/><object type="Core" cpuset="0x1"/></object></topology>)");
}

}  // namespace gyre::fuzz
