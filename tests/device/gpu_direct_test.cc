// GPUDirect RDMA of whole communicators: fake GPUs and fake NICs in one process, ranks as threads.
// When it is used and why not, as a dmabuf and by addresses, what the log says, and each call that
// fails once. What a NIC writes to a GPU is there only after a flush.
#include "lib/comm/process.h"
#include "lib/topology/paths.h"
#include "tests/support/catch.h"
#include "tests/support/device/described_devices.h"
#include "tests/support/device/device_processes.h"
#include "tests/support/device/plan_ports.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <fmt/core.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gpu_direct_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

// A machine, and what is expected there.
struct Scene {
  std::string name;
  FakeCudaOptions gpus = {};
  FakeGpuMemory nics = {};
  std::string level = "SYS";
  std::string said = {};  // in the log
  bool is_direct = true;
  bool knows_dmabufs = true;  // libibverbs
  FakeVerbsOptions machine = two_nics();
};

Scene with_dmabufs() {
  return {.name = "dmabuf",
          .gpus = {.dmabuf = true},
          .said = "GPUDirect RDMA by fake0:1, fake1:1, flushed by reads"};
}
Scene with_peer_memory() {
  return {.name = "peer memory",
          .gpus = {.nics_reach = true},
          .nics = {.by_address = true, .by_dmabuf = false},
          .said = "of a GPU's memory by their address"};
}

std::vector<Scene> scenes() {
  std::vector<Scene> all = {with_dmabufs(), with_peer_memory()};
  const auto like = [&](Scene scene, std::string name, std::string said) -> Scene& {
    scene.name = std::move(name);
    scene.said = std::move(said);
    return all.emplace_back(std::move(scene));
  };
  Scene& old_kernel = like(with_peer_memory(), "a kernel without dmabufs", "by their address");
  old_kernel.gpus.dmabuf = true;
  Scene& old_library = like(old_kernel, "a library without dmabufs", "by their address");
  old_library.knows_dmabufs = false;
  Scene& in_order = like(with_dmabufs(), "a GPU that orders", "in order without a flush");
  in_order.gpus.nic_writes_ordering = 100;
  in_order.nics.delays_writes = false;
  Scene& old_driver = like(with_peer_memory(), "a driver without dmabufs", "by their address");
  old_driver.gpus.driver = old_driver.gpus.images = 11060;
  const auto none = [&](Scene scene, std::string name, std::string said) -> Scene& {
    scene.is_direct = false;
    return like(std::move(scene), std::move(name), std::move(said));
  };
  none(with_dmabufs(), "no such GPU", "the driver says that NICs cannot reach").gpus.dmabuf = false;
  none(with_dmabufs(), "no such NIC", "a NIC does not take memory of device").nics.by_dmabuf =
      false;
  none(with_dmabufs(), "turned off", "GYRE_NET_GDR_LEVEL=LOC turns it off").level = "LOC";
  none(with_dmabufs(), "nobody knows", "nobody knows how far fake0:1 is from").level = "PXB";
  return all;
}

const std::string not_made = "no such call";

// Of this program, whose children write to it.
const std::string& log_file() {
  static const std::string file = fmt::format("/tmp/gyre-gpu-direct-{}", getpid());
  return file;
}

DeviceProcesses ranks_of(const Scene& scene) {
  DeviceProcesses all = apart(1, 2,
                              {{"GYRE_TRANSPORT", "rdma"},
                               {"GYRE_TIMEOUT", "60"},
                               {"GYRE_DEBUG", "INFO"},
                               {"GYRE_DEBUG_SUBSYS", "NET"},
                               {"GYRE_DEBUG_FILE", log_file()},
                               {"GYRE_NET_GDR_LEVEL", scene.level}});
  all.fake = [scene](int) {
    FakeCudaOptions options = scene.gpus;
    options.devices = 4;
    return options;
  };
  return all;
}

std::string text_of_log() {
  std::ifstream log(log_file());
  return {std::istreambuf_iterator<char>(log), {}};
}

// The NICs of a process, while it lives.
struct NicsHere {
  NicsHere(DeviceProcess& here, const Scene& scene) : fake(scene.machine), here_(here) {
    FakeGpuMemory known = scene.nics;
    known.is_there = [&here](const void* place) { return here.fake.is_of_device(place); };
    fake.know_gpus(known);
    if (!scene.knows_dmabufs) fake.forget_dmabufs();
    comm::process().verbs.use(&fake.table());
  }
  ~NicsHere() {
    here_.abort();  // what an error has left
    (void)left();
    comm::process().verbs.use(nullptr);
  }
  // Into memory of GPUs, and out of it.
  std::pair<std::uint64_t, std::uint64_t> moved() const {
    std::uint64_t into = 0, from = 0;
    for (const MemoryRange& range : fake.registered()) {
      if (!here_.fake.is_of_device(range.data)) continue;
      into += fake.bytes_into(range.data);
      from += fake.bytes_from(range.data);
    }
    return {into, from};
  }
  // Relays go on for a while after their communicator.
  std::string left() const {
    for (int turn = 0; turn < 1000 && !fake.live().empty(); ++turn) usleep(5000);
    return fake.live().empty() ? "" : "left: " + fake.live();
  }
  FakeVerbs fake;

 private:
  DeviceProcess& here_;
};

std::string check_scene(DeviceProcess& here, const Scene& scene) {
  NicsHere nics(here, scene);
  if (const std::string refused = here.init(); !refused.empty()) return refused;
  for (const std::size_t count : {std::size_t{3}, std::size_t{5000}})
    if (const std::string wrong = here.check_collectives(count); !wrong.empty()) return wrong;
  const auto [into, from] = nics.moved();
  here.destroy();
  if ((into > 0) != scene.is_direct || (from > 0) != scene.is_direct)
    return fmt::format("{} bytes into GPUs, {} out of them", into, from);
  if (nics.fake.bytes_on_way_to_gpus() > 0) return "bytes have not arrived";
  const std::string log = text_of_log();
  if (log.find(scene.said) == log.npos) return "not said: " + scene.said + " in: " + log;
  return nics.left();
}

}  // namespace

TEST_CASE("NICs reach the memory of GPUs if all parts allow it, and the log says", "[device]") {
  const Scene scene = GENERATE(from_range(scenes()));
  INFO(scene.name);
  check_all(run_processes(ranks_of(scene),
                          [&](DeviceProcess& here) { return check_scene(here, scene); }));
  (void)unlink(log_file().c_str());
}

namespace {

// Right results, or an error that says so; nothing stays behind. Whether the call was made.
std::string live_through(DeviceProcess& here, const Scene& scene, std::string_view call, int k,
                         bool may_fail, const comm::PlannedPorts& ports = {}) {
  NicsHere nics(here, scene);
  const int before = nics.fake.calls(call);
  nics.fake.fail_call(call, k);
  std::string refused = here.init();
  if (refused.empty() && !ports.in.empty()) plan_ports(here, ports);
  if (refused.empty()) refused = here.check_collectives(5000);
  if (!refused.empty() && !may_fail) return refused;
  if (refused.empty())
    here.destroy();
  else
    here.abort();
  const bool was_made = nics.fake.calls(call) >= before + k;
  if (const std::string left = nics.left(); !left.empty()) return left;
  return was_made ? "" : not_made;
}

// The same of each use of the call, in processes of their own. How often `said` was logged.
int live_through_each(const DeviceProcesses& all, const Scene& scene, std::string_view call,
                      bool may_fail, const std::string& said,
                      const comm::PlannedPorts& ports = {}) {
  int times = 0;
  for (int k = 1;; ++k) {
    CAPTURE(call, k);
    const auto complaints = run_processes(all, [&](DeviceProcess& here) {
      return live_through(here, scene, call, k, may_fail, ports);
    });
    const std::string log = text_of_log();
    (void)unlink(log_file().c_str());
    times += log.find(said) != log.npos;
    if (complaints == std::vector<std::string>{not_made}) return times;
    check_all(complaints);
    if (complaints != std::vector<std::string>{""}) return times;
  }
}

}  // namespace

TEST_CASE("where a part of GPUDirect RDMA is refused once, the host's memory is used", "[device]") {
  const bool by_dmabuf = GENERATE(true, false);
  CAPTURE(by_dmabuf);
  const Scene scene = by_dmabuf ? with_dmabufs() : with_peer_memory();
  // Of the slots and notes of a connection, too, if it is not by dmabufs: then it cannot be made.
  const int times =
      live_through_each(ranks_of(scene), scene, by_dmabuf ? "reg_dmabuf_mr" : "reg_mr", !by_dmabuf,
                        ": no GPUDirect RDMA: a NIC does not take memory of device");
  CHECK(times == 4);  // two ranks, two NICs
}

// One more than a rank receives by: those have the rings by then.
TEST_CASE("where a NIC that sends does not take a GPU's memory, it takes the host's", "[device]") {
  Scene scene = with_dmabufs();
  scene.machine = many_nics(6);
  DeviceProcesses all = ranks_of(scene);
  all.variables["GYRE_ALGO"] = "ring";
  const comm::PlannedPorts ports = {.out = {"fake4:1"}, .in = {"fake5:1"}};
  const int times = live_through_each(all, scene, "reg_dmabuf_mr", false,
                                      ": no GPUDirect RDMA for what is sent: ", ports);
  CHECK(times == 2);
}

TEST_CASE("where the driver exports no dmabuf once, ranks go on", "[device]") {
  const int k = GENERATE(1, 2, 3);  // each rank has one link, so there is no third
  const bool by_address = GENERATE(false, true);
  CAPTURE(k, by_address);
  Scene scene = with_dmabufs();
  scene.gpus.nics_reach = scene.nics.by_address = by_address;
  check_all(run_processes(ranks_of(scene), [&](DeviceProcess& here) -> std::string {
    NicsHere nics(here, scene);
    here.fake.fail_dmabuf(k);
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    if (const std::string wrong = here.check_collectives(5000); !wrong.empty()) return wrong;
    if (nics.moved().first == 0) return "no byte went to a GPU";
    here.destroy();
    const std::string log = text_of_log();
    const bool is_said =
        log.find(by_address ? "by their address" : "cuMemGetHandleForAddressRange of ") != log.npos;
    return is_said == (k < 3) ? nics.left() : "said or not: " + log;
  }));
  (void)unlink(log_file().c_str());
}

TEST_CASE("each call of libibverbs that a relay makes fails once", "[device]") {
  const std::string_view call = GENERATE(values<std::string_view>(
      {"create_qp", "modify_qp", "post_send", "create_cq", "poll_cq", "req_notify_cq"}));
  const int k = GENERATE(range(1, 30, 4));
  CAPTURE(call, k);
  const Scene scene = with_dmabufs();
  DeviceProcesses all = ranks_of(scene);
  all.variables["GYRE_TIMEOUT"] = "5";
  check_all(run_processes(all, [&](DeviceProcess& here) -> std::string {
    const std::string wrong = live_through(here, scene, call, k, true);
    return wrong == not_made ? "" : wrong;
  }));
  (void)unlink(log_file().c_str());
}

TEST_CASE("of many NICs those near the GPU are taken, and none that is far", "[device]") {
  const std::string level = GENERATE("PIX", "PXB", "PHB");
  const topology::Topology machine = with_fake_devices(described_machine("dgx_a100"));
  const TopologyFile file(machine);
  const topology::EdgeTable edges(machine);
  FakeVerbsOptions nics{.devices = {}};
  std::map<std::string, int> ports;
  for (const int index : machine.all(topology::NodeKind::port)) {
    const topology::TopologyNode& node = machine.node(index);
    if (!node.port->has_verbs) continue;
    ports[node.name] = index;
    nics.devices.push_back(
        {.name = node.name, .ports = {{.gids = {fmt::format("10.0.0.{}", ports.size())}}}});
  }
  REQUIRE(ports.size() >= 8);
  const auto farthest = level == "PIX"   ? topology::PathClass::one_switch
                        : level == "PXB" ? topology::PathClass::switches
                                         : topology::PathClass::processor;
  Scene scene = with_dmabufs();
  scene.level = level;
  scene.machine = nics;
  DeviceProcesses all = ranks_of(scene);
  all.variables["GYRE_TOPO_FILE"] = file.path();
  check_all(run_processes(all, [&](DeviceProcess& here) -> std::string {
    NicsHere own(here, scene);
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    if (const std::string wrong = here.check_collectives(5000); !wrong.empty()) return wrong;
    const auto [into, from] = own.moved();
    here.destroy();
    bool is_any_near = false;
    for (const auto& [name, index] : ports) {
      bool is_near = false;
      for (int device = 0; device < 2; ++device)
        is_near |=
            edges.path_between(machine.find_bus_id(fake_bus_id(device)), index).kind <= farthest;
      is_any_near |= is_near;
      // Where some are near, no byte goes by the others.
      if (!is_near && into > 0 && own.fake.bytes_by(name) > 0) return "by " + name;
    }
    if (is_any_near != (into > 0)) return fmt::format("{} bytes into GPUs, {} from", into, from);
    if (!is_any_near &&
        text_of_log().find("and GYRE_NET_GDR_LEVEL is " + level) == std::string::npos)
      return "not said: " + text_of_log();
    return own.left();
  }));
  (void)unlink(log_file().c_str());
}

}  // namespace gpu_direct_test
