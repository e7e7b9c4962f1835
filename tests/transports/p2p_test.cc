// Routes between GPUs: how they are found, and that all ranks get the same ones. Leases on lent
// memory. Memory that is mapped by descriptors.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/fake_nvml.h"
#include "transports/p2p/bus.h"
#include "transports/p2p/lease.h"
#include "transports/p2p/survey.h"
#include "transports/p2p/virtual_memory.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace p2p_test {

using namespace gyre;
using namespace gyre::p2p;
using namespace gyre::tests;
namespace nvml = loaded::nvml;

namespace {

std::string uuid_of(int gpu) {
  return loaded::shown(loaded::CuUuid{{0xfa, 0xce, static_cast<unsigned char>(gpu)}});
}

// One GPU of a process on host 1, which knows of the others what is given.
Gpu gpu(int number, std::uint8_t process, std::vector<RouteReport> toward = {}) {
  Gpu made;
  made.host.fill(1);
  made.process.fill(process);
  made.uuid = uuid_of(number);
  made.toward = std::move(toward);
  return made;
}

RouteReport toward(int number, PeerAccess access = PeerAccess::reaches, Path path = Path::unknown,
                   std::uint32_t lanes = 0) {
  return {uuid_of(number), access, path, lanes};
}

// A fake whose first device is this thread's.
struct OneDevice {
  explicit OneDevice(const FakeCudaOptions& options = {}) : fake(options), driver(fake.table()) {
    REQUIRE(driver->primary_retain(&context, 0) == loaded::cu::success);
  }
  ~OneDevice() { (void)driver->primary_release(0); }
  MemoryOwner owner(int device = 0) const { return {*driver, context, device}; }
  std::string left() const { return fake.leaks(); }

  FakeCuda fake;
  std::unique_ptr<const loaded::CudaDriver> driver;
  loaded::CuContext context = nullptr;
};
const std::string nothing_left = "1 retained contexts; ";

}  // namespace

TEST_CASE("the way between two GPUs is the same from both ends", "[p2p]") {
  struct Case {
    Gpu here, there;
    GpuRoute way;
    Path path;
    const char* reason;  // a word of it; empty: none
  };
  Gpu elsewhere = gpu(1, 2);
  elsewhere.host.fill(2);
  const Case cases[] = {
      {gpu(0, 1), gpu(0, 1), GpuRoute::pointer, Path::same, ""},
      {gpu(0, 1), gpu(0, 2), GpuRoute::ipc, Path::same, ""},
      {gpu(0, 1, {toward(1)}), gpu(1, 1, {toward(0)}), GpuRoute::pointer, Path::unknown, ""},
      {gpu(0, 1, {toward(1)}), gpu(1, 2, {toward(0)}), GpuRoute::ipc, Path::unknown, ""},
      {gpu(0, 1), gpu(1, 2, {toward(0)}), GpuRoute::ipc, Path::unknown, "the driver will"},
      {gpu(0, 1), gpu(1, 2), GpuRoute::ipc, Path::unknown, "the driver will"},
      {gpu(0, 1), elsewhere, GpuRoute::relay, Path::unknown, "another host"},
      // One of them is enough to refuse, or to know what lies between.
      {gpu(0, 1, {toward(1, PeerAccess::no_peer_access)}), gpu(1, 2, {toward(0)}), GpuRoute::relay,
       Path::unknown, "the driver finds no path"},
      {gpu(0, 1, {toward(1, PeerAccess::reaches, Path::nvlink, 18)}),
       gpu(1, 2, {toward(0, PeerAccess::disabled)}), GpuRoute::relay, Path::nvlink,
       "GYRE_P2P_DISABLE"},
      {gpu(0, 1, {toward(1, PeerAccess::too_far, Path::interconnect)}), gpu(1, 2), GpuRoute::relay,
       Path::interconnect, "GYRE_P2P_LEVEL"},
  };
  for (const Case& one : cases) {
    const PairRoute out = find_route(one.here, one.there), back = find_route(one.there, one.here);
    INFO(out.reason);
    CHECK((out.way == one.way && back.way == one.way));
    CHECK((out.path == one.path && back.path == one.path));
    CHECK(out.lanes == back.lanes);
    CHECK(out.reason.empty() == (*one.reason == '\0'));
    CHECK(mentions(out.reason, one.reason));
    CHECK(mentions(back.reason, one.reason));
  }
}

TEST_CASE("lines of 128 bytes stay whole on one GPU and over NVLink alone", "[p2p]") {
  const auto near = [](int to) { return toward(to, PeerAccess::reaches, Path::nvlink, 4); };
  CHECK(keep_lines_whole(std::vector{gpu(0, 1), gpu(0, 2)}));
  CHECK(keep_lines_whole(
      std::vector{gpu(0, 1, {near(1)}), gpu(1, 2, {near(0)}), gpu(0, 3, {near(1)})}));
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1), gpu(1, 2)}));
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1, {toward(1)}), gpu(1, 2, {toward(0)})}));
  Gpu elsewhere = gpu(0, 2);
  elsewhere.host.fill(2);
  CHECK_FALSE(keep_lines_whole(std::vector{gpu(0, 1), elsewhere}));
}

TEST_CASE("lines of 128 bytes stay whole between GPUs of one kind, or of sm_90 and later",
          "[p2p]") {
  struct Case {
    std::uint32_t first, second;
    bool whole;
  };
  const Case cases[] = {{80, 80, true}, {80, 86, false}, {86, 90, false},
                        {90, 90, true}, {90, 100, true}, {0, 80, false}};
  for (const Case& one : cases) {
    Gpu first = gpu(0, 1, {toward(1, PeerAccess::reaches, Path::nvlink, 4)});
    Gpu second = gpu(1, 2, {toward(0, PeerAccess::reaches, Path::nvlink, 4)});
    first.capability = one.first;
    second.capability = one.second;
    INFO(one.first << " and " << one.second);
    CHECK(keep_lines_whole(std::vector{first, second}) == one.whole);
    CHECK(keep_lines_whole(std::vector{second, first}) == one.whole);
  }
}

TEST_CASE("the driver says what can be reached, NVML what is hidden and what lies between",
          "[p2p]") {
  // GPUs 2, 3 and 5 of a machine; the process sees 3 and 5.
  FakeCuda cuda({.devices = 2, .peer_access = true, .visible = {3, 5}});
  FakeNvmlOptions options{.gpus = {2, 3, 5}};
  options.between = [](int here, int there) {
    if (here == 2 || there == 2) return FakeBetween{.p2p = false, .level = nvml::topology_system};
    return FakeBetween{.level = nvml::topology_hostbridge, .lanes = 4};
  };
  const auto table = cuda.table();
  const OwnGpu own{0, uuid_of(3), "0000:13:00.0"};
  SECTION("with NVML") {
    const FakeNvml fake(options);
    const auto found = survey(*table, fake.table().get(), own, {});
    CHECK(found == std::vector{toward(5, PeerAccess::reaches, Path::nvlink, 4),
                               toward(2, PeerAccess::no_peer_access, Path::interconnect)});
  }
  SECTION("without NVML") {
    CHECK(survey(*table, nullptr, own, {}, "/nowhere") == std::vector{toward(5)});
  }
  SECTION("over a switch of NVLink") {
    options.between = [](int, int) { return FakeBetween{}; };
    options.switch_lanes = [](int gpu) { return gpu == 2 ? 0U : gpu == 3 ? 18U : 12U; };
    const FakeNvml fake(options);
    const auto found = survey(*table, fake.table().get(), own, {});
    CHECK(found == std::vector{toward(5, PeerAccess::reaches, Path::nvlink, 12),
                               toward(2, PeerAccess::reaches, Path::interconnect)});
  }
}

TEST_CASE("GYRE_P2P_LEVEL leaves out what is farther, as far as anybody knows", "[p2p]") {
  struct Case {
    int level;
    Path path;
  };
  const Case cases[] = {
      {nvml::topology_internal, Path::one_switch}, {nvml::topology_single, Path::one_switch},
      {nvml::topology_multiple, Path::switches},   {nvml::topology_hostbridge, Path::host_bridge},
      {nvml::topology_node, Path::host_bridge},    {nvml::topology_system, Path::interconnect}};
  FakeCuda cuda({.devices = 2});
  const auto table = cuda.table();
  const OwnGpu own{0, uuid_of(0), "0000:10:00.0"};
  for (const Case& one : cases) {
    const FakeNvml fake({.between = [&](int, int) { return FakeBetween{.level = one.level}; }});
    for (const Path farthest : {Path::same, Path::nvlink, Path::one_switch, Path::switches,
                                Path::host_bridge, Path::interconnect}) {
      const PeerAccess wanted = one.path <= farthest ? PeerAccess::reaches : PeerAccess::too_far;
      CHECK(survey(*table, fake.table().get(), own, {.farthest = farthest}) ==
            std::vector{toward(1, wanted, one.path)});
    }
    CHECK(survey(*table, fake.table().get(), own, {.disabled = true}) ==
          std::vector{toward(1, PeerAccess::disabled, one.path)});
  }
  CHECK(survey(*table, nullptr, own, {.farthest = Path::nvlink}, "/nowhere") ==
        std::vector{toward(1)});
  CHECK(survey(*table, nullptr, own, {.farthest = Path::same}, "/nowhere") ==
        std::vector{toward(1, PeerAccess::too_far)});
}

TEST_CASE("the PCI bus shows what lies between, from both ends alike", "[p2p]") {
  const std::string bridge = "/sys/devices/pci0000:00/", other = "/sys/devices/pci0000:80/";
  const std::string behind = bridge + "0000:00:01.0/0000:01:00.0/";  // a port, a switch
  struct Case {
    std::string here, there;
    int here_node, there_node;
    Path path;
  };
  const Case cases[] = {
      {behind + "0000:02:08.0/0000:03:00.0", behind + "0000:02:10.0/0000:04:00.0", 0, 0,
       Path::one_switch},
      // A second switch behind the first.
      {behind + "0000:02:08.0/0000:03:00.0",
       behind + "0000:02:10.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0, 0, Path::switches},
      // Two ports of one bridge; two devices at the bridge, as virtual machines have them.
      {behind + "0000:02:08.0/0000:03:00.0", bridge + "0000:00:02.0/0000:09:00.0", 0, 0,
       Path::host_bridge},
      {bridge + "0000:00:05.0", bridge + "0000:00:06.0", no_numa_node, no_numa_node,
       Path::host_bridge},
      {bridge + "0000:00:05.0", other + "0000:80:01.0", 1, 1, Path::host_bridge},
      {bridge + "0000:00:05.0", other + "0000:80:01.0", 0, 1, Path::interconnect},
      {bridge + "0000:00:05.0", other + "0000:80:01.0", no_numa_node, 1, Path::unknown},
      {"/sys/devices/LNXSYSTM:00/VMBUS:00/pci0001:00/0001:00:00.0",
       "/sys/devices/LNXSYSTM:00/VMBUS:00/pci0002:00/0002:00:00.0", 0, 0, Path::host_bridge},
      {"", bridge + "0000:00:05.0", 0, 0, Path::unknown},
      {bridge + "0000:00:05.0/virtual", bridge + "0000:00:06.0", 0, 0, Path::unknown},
  };
  for (const Case& one : cases) {
    INFO(one.here << " and " << one.there);
    CHECK(path_between(one.here, one.there, one.here_node, one.there_node) == one.path);
    CHECK(path_between(one.there, one.here, one.there_node, one.here_node) == one.path);
  }
}

TEST_CASE("without NVML the survey reads the bus, and says what it cannot see there", "[p2p]") {
  // GPUs 0 and 1 on two processors, 0 and 2 on one switch.
  char folder[] = "/tmp/gyre-sysfs-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::filesystem::path sysfs = folder;
  const auto add = [&](const char* id, const std::string& place, const char* node) {
    std::filesystem::create_directories(sysfs / "devices" / place);
    std::filesystem::create_directories(sysfs / "bus/pci/devices");
    std::filesystem::create_symlink(sysfs / "devices" / place, sysfs / "bus/pci/devices" / id);
    std::ofstream(sysfs / "devices" / place / "numa_node") << node << "\n";
  };
  add("0000:10:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:10:00.0", "0");
  add("0000:12:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:10.0/0000:12:00.0", "0");
  add("0000:11:00.0", "pci0000:80/0000:80:01.0/0000:11:00.0", "1");
  FakeCuda cuda({.devices = 4});
  const auto table = cuda.table();
  const OwnGpu own{0, uuid_of(0), "0000:10:00.0"};
  const auto found = [&](Path farthest) {
    return survey(*table, nullptr, own, {.farthest = farthest}, sysfs);
  };
  CHECK(found(Path::interconnect) == std::vector{toward(1, PeerAccess::reaches, Path::interconnect),
                                                 toward(2, PeerAccess::reaches, Path::one_switch),
                                                 toward(3)});
  CHECK(found(Path::host_bridge) ==
        std::vector{toward(1, PeerAccess::too_far_on_bus, Path::interconnect),
                    toward(2, PeerAccess::reaches, Path::one_switch), toward(3)});
  // NVLink may be there.
  CHECK(found(Path::nvlink) == std::vector{toward(1, PeerAccess::reaches, Path::interconnect),
                                           toward(2, PeerAccess::reaches, Path::one_switch),
                                           toward(3)});
  const PairRoute between = find_route(gpu(0, 1, found(Path::host_bridge)), gpu(1, 2));
  CHECK(between.way == GpuRoute::relay);
  CHECK(mentions(between.reason, "the bus does not show NVLink"));
  // What NVML knows goes before.
  const FakeNvml fake({.between = [](int, int) { return FakeBetween{.lanes = 4}; }});
  CHECK(survey(*table, fake.table().get(), own, {}, sysfs)[0] ==
        toward(1, PeerAccess::reaches, Path::nvlink, 4));
  std::filesystem::remove_all(sysfs);
}

TEST_CASE("MIG instances of one GPU reach nobody but themselves, with the reason", "[p2p]") {
  // Each process sees an instance of its own, and NVML the GPU that they are parts of.
  const FakeNvml fake({.gpus = {0}});
  const auto seen = [&](int instance, std::uint8_t process) {
    FakeCuda cuda({.visible = {instance}, .mig = true});
    const auto table = cuda.table();
    char bus_id[32] = "";
    REQUIRE(table->device_pci_bus_id(bus_id, sizeof bus_id, 0) == loaded::cu::success);
    Gpu made = gpu(instance, process);
    made.uuid = loaded::find_uuid(*table, 0);
    made.bus_id = bus_id;
    made.toward = survey(*table, fake.table().get(), {0, made.uuid, made.bus_id}, {});
    return made;
  };
  const Gpu one = seen(1, 1), two = seen(2, 2), again = seen(1, 3);
  CHECK(is_instance(one.uuid));
  CHECK(one.uuid != two.uuid);
  CHECK(one.bus_id == two.bus_id);
  for (const auto& [here, there] : {std::pair(one, two), std::pair(two, one),
                                    std::pair(one, gpu(5, 4)), std::pair(gpu(5, 4), one)}) {
    const PairRoute between = find_route(here, there);
    CHECK(between.way == GpuRoute::relay);
    CHECK(mentions(between.reason, "is a MIG instance"));
  }
  const PairRoute same = find_route(one, again);
  CHECK(same.way == GpuRoute::ipc);
  CHECK(same.path == Path::same);
}

TEST_CASE("paths are named as NCCL names them", "[p2p]") {
  for (int i = 0; i < path_count; ++i) {
    const auto path = static_cast<Path>(i);
    CHECK(path_named(path_name(path)) == path);
  }
  CHECK_FALSE(path_named("NODE"));
  CHECK(path_shown(PairRoute{GpuRoute::ipc, Path::nvlink, 18, ""}) == "NVL, 18 lanes");
  CHECK(path_shown(PairRoute{GpuRoute::ipc, Path::host_bridge, 0, ""}) == "PHB");
}

TEST_CASE("a lease ends when the last borrower has let go, and nobody borrows after that",
          "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  const auto pid = static_cast<std::uint32_t>(getpid());
  {
    auto first = LeaseBorrower::begin(pid, lease->name());
    REQUIRE(first.ok());
    {
      const auto second = LeaseBorrower::begin(pid, lease->name());
      REQUIRE(second.ok());
      CHECK_FALSE(lease->end());
    }
    CHECK_FALSE(lease->end());
  }
  CHECK(lease->end());
  CHECK(lease->end());
  CHECK_FALSE(LeaseBorrower::begin(pid, lease->name()).ok());
}

TEST_CASE("a borrower that is killed has let go", "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  int borrowed[2];
  REQUIRE(pipe(borrowed) == 0);
  const auto pid = static_cast<std::uint32_t>(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const auto borrowing = LeaseBorrower::begin(pid, lease->name());
    const char good = borrowing.ok() ? 1 : 0;
    if (write(borrowed[1], &good, 1) == 1) pause();
    _exit(1);
  }
  char good = 0;
  REQUIRE(read(borrowed[0], &good, 1) == 1);
  CHECK(good == 1);
  CHECK_FALSE(lease->end());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(lease->end());
  close(borrowed[0]);
  close(borrowed[1]);
}

TEST_CASE("what is no lease is not taken for one", "[p2p]") {
  auto lease = Lease::make();
  REQUIRE(lease.ok());
  const auto pid = static_cast<std::uint32_t>(getpid());
  LeaseName other = lease->name();
  ++other.inode;
  CHECK_FALSE(LeaseBorrower::begin(pid, other).ok());
  CHECK_FALSE(LeaseBorrower::begin(pid, {0, 1}).ok());
  CHECK_FALSE(LeaseBorrower::begin(pid, {1 << 20, 1}).ok());
  CHECK_FALSE(LeaseBorrower::begin(1U << 22, lease->name()).ok());  // no such process
}

TEST_CASE("virtual memory is one and the same wherever it is mapped, and lasts as long", "[p2p]") {
  OneDevice one({.devices = 2});
  REQUIRE(*VirtualMemory::is_there(one.owner()));
  auto made = VirtualMemory::make(one.owner(), 100'000);
  REQUIRE(made.ok());
  // Two of the kind fake's granules, or one of the harsh one's.
  CHECK((*made)->bytes() == (FakeCudaOptions::harsh_by_environment() ? 2 << 20 : 128 << 10));
  auto file = (*made)->export_file();
  REQUIRE(file.ok());
  auto seen = VirtualMemory::import(one.owner(1), *file, (*made)->bytes());
  REQUIRE(seen.ok());
  CHECK((*seen)->begin() != (*made)->begin());
  (*made)->begin()[99'999] = std::byte{42};
  (*made).reset();
  CHECK((*seen)->begin()[99'999] == std::byte{42});
  const auto known = loaded::find_pointer(*one.driver, (*seen)->begin());
  CHECK((known->known && known->on_device && known->device == 0));
  (*seen).reset();
  CHECK(one.left() == nothing_left);
}

TEST_CASE("want of memory at any step of virtual memory is an error without a leak", "[p2p]") {
  OneDevice one;
  int steps = 0;
  for (bool through = false; !through; ++steps) {
    one.fake.fail_allocation(steps + 1);
    {
      auto made = VirtualMemory::make(one.owner(), 1);
      const auto file = made.ok() ? (*made)->export_file() : Result<FileDescriptor>(made.status());
      auto seen = file.ok() ? VirtualMemory::import(one.owner(), *file, (*made)->bytes())
                            : Result<std::shared_ptr<VirtualMemory>>(file.status());
      through = seen.ok();
      if (!through) CHECK(mentions(std::string(seen.status().message()), "OUT_OF_MEMORY"));
    }
    CHECK(one.left() == nothing_left);
    REQUIRE(steps < 20);
  }
  // Create, reserve, map, access; export; import, reserve, map, access.
  CHECK(steps == 10);
  CHECK(one.fake.failure() == "");
}

TEST_CASE("what is no virtual memory, or less than was said, is not mapped", "[p2p]") {
  OneDevice one({.devices = 2, .peer_access = false});
  auto made = VirtualMemory::make(one.owner(), 1);
  REQUIRE(made.ok());
  auto file = (*made)->export_file();
  REQUIRE(file.ok());
  const std::uint64_t bytes = (*made)->bytes();
  CHECK_FALSE(VirtualMemory::import(one.owner(), *file, 2 * bytes).ok());
  CHECK_FALSE(VirtualMemory::import(one.owner(), *file, 0).ok());
  CHECK_FALSE(VirtualMemory::import(one.owner(1), *file, bytes).ok());
  CHECK_FALSE(VirtualMemory::import(one.owner(), FileDescriptor(dup(0)), bytes).ok());
  CHECK_FALSE(VirtualMemory::import(one.owner(), FileDescriptor(), bytes).ok());
}

TEST_CASE("a device without virtual memory says so", "[p2p]") {
  CHECK_FALSE(*VirtualMemory::is_there(OneDevice({.virtual_memory = false}).owner()));
}

}  // namespace p2p_test
