// The NIC ports that links of rings between GPUs take, as a search plans them: two hosts on one
// machine, which differ by their boot ids alone; and relays over fake NICs.
#include "lib/comm/process.h"
#include "lib/comm/ring_searches.h"
#include "lib/topology/outline.h"
#include "tests/support/catch.h"
#include "tests/support/device/described_devices.h"
#include "tests/support/device/device_processes.h"
#include "tests/support/device/device_ranks.h"
#include "tests/support/device/plan_ports.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace device_ports_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

std::string boot_id_of(int process) {
  return fmt::format("/tmp/gyre-boot-{}-{}", getppid(), process);
}

// This process is on a host of its own from now on. False where nobody may say so.
bool move_to_host(int process) {
  const std::string boot_id = boot_id_of(process);
  std::ofstream(boot_id) << "host " << process << '\n';
  const bool moved =
      unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount(boot_id.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
  (void)std::remove(boot_id.c_str());
  return moved;
}

bool may_make_hosts() {
  const pid_t child = fork();
  if (child == 0) _exit(move_to_host(0) ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// Ranks of process p are on host p, each on the device of its number.
topology::Cluster cluster_of(const topology::Topology& machine, const DeviceProcess& here) {
  topology::Cluster cluster;
  cluster.machines.push_back(machine);
  const int each = static_cast<int>(here.comms.size());
  for (int rank = 0; rank < here.ranks(); ++rank) {
    if (rank % each == 0) cluster.hosts.push_back({0, {}});
    cluster.hosts.back().members.push_back({rank, machine.find_bus_id(fake_bus_id(rank))});
  }
  return cluster;
}

// What a rank's log says of ports, as `ring_ports` has it.
std::vector<std::string> port_lines(const comm::PortsByPeer& ports) {
  std::vector<std::string> lines;
  for (const auto& [peer, planned] : ports)
    lines.push_back(fmt::format("rings are planned to cross to rank {} by {}, and from it by {}\n",
                                peer, fmt::join(planned.out, ", "), fmt::join(planned.in, ", ")));
  return lines;
}

std::string text_in(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

// The process's ranks plan for the ports that a search of its own has for them, and for no others.
std::string complaint_about_plan(DeviceProcess& here, const topology::Cluster& cluster,
                                 const std::string& log) {
  const auto pin =
      comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(here.comms[0]));
  const auto channels = static_cast<int>(device_resources(*pin).channels());
  const auto found = topology::find_rings(cluster, {.max_channels = channels});
  if (!found.ok()) return std::string(found.status().message());
  std::map<std::string, std::size_t> wanted;
  std::size_t lines = 0;
  for (std::size_t place = 0; place < here.comms.size(); ++place)
    for (const std::string& line :
         port_lines(comm::ring_ports(cluster, *found, here.rank(place)))) {
      ++wanted[line];
      ++lines;
    }
  const std::string text = text_in(log);
  if (lines == 0 || count_of(text, "rings are planned to cross") != lines)
    return fmt::format("{} lines were awaited: {}", lines, text);
  for (const auto& [line, count] : wanted)
    if (count_of(text, line) != count) return "not said: " + line + " but " + text;
  return "";
}

}  // namespace

TEST_CASE("ranks on two hosts plan for the ports by which their rings cross", "[device]") {
  if (!may_make_hosts()) {
    WARN("left out: it takes the rights to mount over this machine's boot id");
    return;
  }
  const topology::Topology machine = with_fake_devices(described_machine("hgx_h100"));
  const TopologyFile file(machine);
  const std::string log = fmt::format("/tmp/gyre-ports-{}-", getpid());
  DeviceProcesses all = apart(2, 2,
                              {{"GYRE_TRANSPORT", "tcp"},
                               {"GYRE_ALGO", "ring"},
                               {"GYRE_TOPO_FILE", file.path()},
                               {"GYRE_DEBUG", "INFO"},
                               {"GYRE_DEBUG_SUBSYS", "GRAPH"},
                               {"GYRE_DEBUG_FILE", log + "%p"}});
  all.fake = [](int process) {
    (void)move_to_host(process);
    return FakeCudaOptions{.devices = 4};
  };
  check_all(run_processes(all, [&](DeviceProcess& here) -> std::string {
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    const std::string own_log = log + std::to_string(getpid());
    std::string wrong =
        complaint_about_plan(here, cluster_of(topology::outline(machine), here), own_log);
    if (wrong.empty()) wrong = here.check_collectives(5000);
    (void)std::remove(own_log.c_str());
    return wrong;
  }));
}

TEST_CASE("relays of rings cross by the planned ports, and without a plan by the first four",
          "[device]") {
  const bool is_planned = GENERATE(true, false);
  CAPTURE(is_planned);
  const DeviceProcesses all = apart(1, 2,
                                    {{"GYRE_TRANSPORT", "rdma"},
                                     {"GYRE_ALGO", "ring"},
                                     {"GYRE_BUFFSIZE", "262144"},
                                     {"GYRE_TIMEOUT", "60"}});
  check_all(run_processes(all, [&](DeviceProcess& here) -> std::string {
    FakeVerbs fake(many_nics(8));
    comm::process().verbs.use(&fake.table());
    if (const std::string refused = here.init(); !refused.empty()) return refused;
    if (is_planned) plan_ports(here, {.out = {"fake6:1"}, .in = {"fake6:1"}});
    std::string wrong = here.check_collectives(100'000);
    for (int nic = 0; nic < 8 && wrong.empty(); ++nic) {
      const bool is_used = fake.bytes_by(fmt::format("fake{}", nic)) > 0;
      if (is_used != (is_planned ? nic == 6 : nic < 4)) wrong = fmt::format("by fake{}", nic);
    }
    here.destroy();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!fake.live().empty() && std::chrono::steady_clock::now() < until) usleep(5000);
    if (!fake.live().empty()) wrong += " left: " + fake.live();
    comm::process().verbs.use(nullptr);
    return wrong;
  }));
}

}  // namespace device_ports_test
