// Discovery: on this host, and on trees of files that stand for other hosts.
#include "lib/topology/discover.h"

#include "lib/topology/hwloc_xml.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda/fake_nvml.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace discover_test {

using namespace gyre;
using namespace gyre::topology;
namespace fs = std::filesystem;

namespace {

// A folder in the place of /sys, gone at the end.
class FakeSysfs {
 public:
  FakeSysfs() {
    std::string pattern = fs::temp_directory_path() / "gyre-sysfs-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~FakeSysfs() { fs::remove_all(root_); }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  void write(const fs::path& file, std::string_view text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  // `device`: where the interface's device is, below the folder; empty for none.
  void add_interface(const std::string& name, const fs::path& device, std::string_view speed,
                     std::string_view state, std::string_view type = "1") const {
    const fs::path folder = fs::path("class/net") / name;
    write(folder / "type", type);
    write(folder / "mtu", "9000");
    write(folder / "operstate", state);
    write(folder / "carrier", state == "up" ? "1" : "0");
    if (!speed.empty()) write(folder / "speed", speed);
    link(folder / "device", device);
  }
  void link(const fs::path& from, const fs::path& device) const {
    if (device.empty()) return;
    fs::create_directories(root_ / device);
    fs::create_directory_symlink(root_ / device, root_ / from);
  }
  std::string path() const { return root_; }

 private:
  fs::path root_;
};

const TopologyNode& port(const Topology& topology, std::string_view name) {
  for (const TopologyNode& node : topology.nodes)
    if (node.kind == NodeKind::port && node.name == name) return node;
  FAIL("no port " << name);
  return topology.nodes.front();
}

bool has_missed(const Topology& topology, std::string_view words) {
  return std::ranges::any_of(topology.missed, [&](const std::string& one) {
    return one.find(words) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("this host is discovered, and its file says the same", "[topology]") {
  const Topology found = discover({});
  CHECK(check(found).message() == "");
  CHECK(found.all(NodeKind::core).size() >= 1);
  CHECK(port(found, "lo").port->is_loopback);
  const std::string file = write_hwloc_xml(found);
  INFO(file);
  const auto root = parse_xml(file);
  REQUIRE(root.ok());
  const auto again = read_hwloc_xml(*root);
  REQUIRE(again.ok());
  CHECK(*again == found);
}

TEST_CASE("without hwloc a host is its processors, and says what is missing", "[topology]") {
  const Topology found = discover({.use_hwloc = false});
  CHECK(check(found).message() == "");
  CHECK(found.node(0).processors.count() == static_cast<int>(found.all(NodeKind::core).size()));
  CHECK(has_missed(found, "packages, caches, NUMA nodes and the PCI tree: "));
}

TEST_CASE("without the kernel's files discovery goes on and says so", "[topology]") {
  const FakeSysfs empty;
  const Topology found = discover({.sysfs = empty.path()});
  CHECK(check(found).message() == "");
  CHECK(has_missed(found, "no PCI devices: " + empty.path()));
  CHECK(has_missed(found, "network interfaces: " + empty.path()));
}

TEST_CASE("interfaces have the kernel's speed, state and kind", "[topology]") {
  const FakeSysfs files;
  files.add_interface("eth7", "devices/pci0000:00/0000:00:1f.0/0000:3b:00.0", "100000", "up");
  files.add_interface("eth8", "devices/pci0000:00/0000:00:1f.0/0000:3b:00.1", "-1", "down");
  files.add_interface("virt", "devices/pci0000:00/0000:00:03.0/virtio1", "", "up");
  files.add_interface("docker0", "", "", "down");
  files.add_interface("loop7", "", "", "unknown", "772");
  Topology found = flat_topology("host", {});
  add_ports(found, files.path());
  CHECK(check(found).message() == "");
  CHECK(found.missed.empty());

  const TopologyNode& fast = port(found, "eth7");
  CHECK(fast.gigabytes_per_s == Approx(12.5));
  CHECK(fast.port->is_up);
  CHECK(fast.port->mtu == 9000);
  CHECK(fast.port->protocol == PortProtocol::ethernet);
  CHECK(found.node(fast.parent).bus_id == "0000:3b:00.0");
  CHECK_FALSE(port(found, "eth8").port->is_up);
  CHECK(port(found, "eth8").gigabytes_per_s == 0);
  CHECK(found.node(port(found, "virt").parent).bus_id == "0000:00:03.0");
  CHECK(port(found, "docker0").port->is_virtual);
  CHECK(port(found, "loop7").port->is_loopback);
}

TEST_CASE("an interface whose device is hidden is said not to be known", "[topology]") {
  const FakeSysfs files;
  fs::create_directories(fs::path(files.path()) / "class/net");
  fs::create_directory_symlink("/nowhere", fs::path(files.path()) / "class/net/eth9");
  Topology found = flat_topology("host", {});
  add_ports(found, files.path());
  CHECK_FALSE(port(found, "eth9").port->is_up);
  CHECK(has_missed(found, "whether port eth9 is up"));
}

TEST_CASE("verbs devices have their ports, with rate, state and layer", "[topology]") {
  const FakeSysfs files;
  const auto add = [&](const std::string& number, std::string_view state, std::string_view layer) {
    const fs::path place = fs::path("class/infiniband/mlx5_0/ports") / number;
    files.write(place / "state", state);
    files.write(place / "rate", "200 Gb/sec (4X HDR)");
    files.write(place / "link_layer", layer);
  };
  add("1", "4: ACTIVE", "InfiniBand");
  add("2", "1: DOWN", "Ethernet");
  files.write("class/infiniband/mlx5_0/node_guid", "b8ce:f603:0001:0002");
  files.link("class/infiniband/mlx5_0/device", "devices/pci0000:00/0000:5e:00.0");
  Topology found = flat_topology("host", {});
  add_ports(found, files.path());
  CHECK(check(found).message() == "");
  const std::vector<int> ports = found.all(NodeKind::port);
  REQUIRE(ports.size() == 2);
  const TopologyNode& first = found.node(ports[0]);
  const TopologyNode& second = found.node(ports[1]);
  CHECK(first.parent == second.parent);
  CHECK(first.gigabytes_per_s == Approx(25));
  CHECK((first.port->is_up && first.port->has_verbs));
  CHECK(first.port->protocol == PortProtocol::infiniband);
  CHECK(first.port->guid == "b8ce:f603:0001:0002");
  CHECK_FALSE(second.port->is_up);
  CHECK(second.port->protocol == PortProtocol::ethernet);
}

TEST_CASE("NVML's GPUs have their NVLinks, between them and to switches", "[topology]") {
  tests::FakeNvmlOptions options;
  options.gpus = {0, 1, 2};
  options.between = [](int a, int b) {
    tests::FakeBetween between;
    between.lanes = a + b == 1 ? 4 : 0;  // the first two
    return between;
  };
  options.switch_lanes = [](int gpu) { return gpu == 2 ? 12U : 0U; };
  options.processor_lanes = [](int gpu) { return gpu == 1 ? 11U : 0U; };
  const tests::FakeNvml fake(options);
  const auto table = fake.table();
  Topology found = flat_topology("host", {});
  add_gpus(found, *table);
  CHECK(check(found).message() == "");
  const std::vector<int> gpus = found.all(NodeKind::gpu);
  REQUIRE(gpus.size() == 3);
  CHECK(found.node(gpus[0]).gpu->capability == 90);
  CHECK_FALSE(found.node(gpus[0]).gpu->uuid.empty());
  REQUIRE(found.links.size() == 3);
  CHECK(found.links[0].from == gpus[0]);
  CHECK(found.links[0].to == gpus[1]);
  CHECK(found.links[0].lanes == 4);
  CHECK(found.links[0].gigabytes_per_s == Approx(4 * 20.6));
  CHECK(found.node(found.links[1].to).kind == NodeKind::nv_switch);
  CHECK(found.links[1].lanes == 12);
  CHECK(found.links[2] == TopologyLink{0, gpus[1], JointKind::c2c, 10, 450});
  CHECK(has_missed(found, "what GPU 0 is near"));
}

}  // namespace discover_test
