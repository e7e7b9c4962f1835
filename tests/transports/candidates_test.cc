// The candidates for a pair of ranks: in the order of the settings, each with its figure and its
// reason, and what described machines expect.
#include "lib/links/candidates.h"

#include "lib/topology/cluster.h"
#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace candidates_test {

using namespace gyre;
using namespace gyre::comm;
using topology::Medium;
using topology::RankLocation;
using topology::Topology;

namespace {

// Of ranks on the first and on the last place of a machine, on one host or on two.
Result<std::vector<TransportCandidate>> find_between_ends(const Topology& machine, bool is_one_host,
                                                          const Settings& settings) {
  const std::vector<int> places = topology::usual_members(machine);
  return find_candidates({0, &machine, places.front()},
                         {is_one_host ? 0 : 1, &machine, places.back()}, settings);
}

std::string text_of(const Topology& machine, bool is_one_host, const Settings& settings = {}) {
  const auto found = find_between_ends(machine, is_one_host, settings);
  return found.ok() ? candidates_text(*found) : std::string(found.status().message());
}

// Those that reach, best first.
nlohmann::ordered_json paths_of(const Topology& machine, bool is_one_host) {
  nlohmann::ordered_json paths;
  const auto found = find_between_ends(machine, is_one_host, {});
  REQUIRE(found.ok());
  for (const TransportCandidate& one : *found)
    if (one.reaches) paths[std::string(one.transport)] = path_text(one.path);
  return paths;
}

Settings settings_with(const std::string& transport) {
  Settings settings;
  settings.transport = transport;
  return settings;
}

trust::ProcessIdentity process_on(int host, int number) {
  trust::ProcessIdentity process;
  process.host.fill(static_cast<std::uint8_t>(host));
  process.process.fill(static_cast<std::uint8_t>(number));
  process.listener_name = "there";
  process.addresses = {fmt::format("10.0.0.{}:4711", host)};
  return process;
}

// What a process on host 1 says of a peer. This machine may have RDMA.
std::string text_of(const trust::ProcessIdentity& peer,
                    const Settings& settings = settings_with("^rdma")) {
  const trust::ProcessIdentity self = process_on(1, 1);
  trust::TicketBook tickets;
  const auto transports = make_transports(settings, {.self = self, .tickets = tickets});
  REQUIRE(transports.ok());
  return candidates_text(
      find_candidates(*transports, peer, peer.process == self.process, [](Medium medium) {
        if (medium == Medium::sockets)
          return topology::TransportPath{.exists = true, .text = "over loopback"};
        return topology::TransportPath{.exists = true, .gigabytes_per_s = 12.5, .text = "SYS"};
      }));
}

}  // namespace

TEST_CASE("the first candidate that reaches a rank is taken", "[transports]") {
  const Topology machine = tests::described_machine("hgx_h100");
  CHECK(text_of(machine, true) ==
        "p2p: NVL, 371 GB/s; then shm: by the memory of NUMA node 0, 22 GB/s; then rdma: by mlx5_0 "
        "to mlx5_4, 50 GB/s; then tcp: over loopback, no figure; not self: another rank; not ucx: "
        "GYRE_TRANSPORT does not name it");
  CHECK(text_of(machine, false) ==
        "rdma: by mlx5_0 to mlx5_4, 50 GB/s; then tcp: by mlx5_0 to mlx5_4, 50 GB/s; not self: "
        "another rank; not p2p: another host; not shm: another host; not ucx: GYRE_TRANSPORT does "
        "not "
        "name it");
}

TEST_CASE("settings order the candidates, and leave some out", "[transports]") {
  const Topology machine = tests::described_machine("xeon_8480_pair");
  CHECK(text_of(machine, true, settings_with("tcp,shm")) ==
        "tcp: over loopback, no figure; then shm: SYS, 22 GB/s; not self: another rank; not p2p: "
        "core 0 is not a GPU; not rdma: GYRE_TRANSPORT leaves it out; not ucx: GYRE_TRANSPORT does "
        "not "
        "name it");
  CHECK(
      text_of(machine, false, settings_with("^tcp")) ==
      "none; not self: another rank; not p2p: another host; not shm: another host; not rdma: host "
      "xeon_8480_pair has no RDMA port; not tcp: GYRE_TRANSPORT leaves it out; not ucx: "
      "GYRE_TRANSPORT "
      "does not name it");
  CHECK(text_of(machine, false, settings_with("ucx,tcp")) ==
        "ucx: by eth0 to eth0, 12.5 GB/s; then tcp: by eth0 to eth0, 12.5 GB/s; not self: another "
        "rank; not p2p: another host; not shm: GYRE_TRANSPORT leaves it out; not rdma: "
        "GYRE_TRANSPORT leaves it out");
  Settings disabled;
  disabled.shm_disable = disabled.p2p_disable = disabled.ib_disable = true;
  CHECK(
      text_of(machine, true, disabled) ==
      "tcp: over loopback, no figure; not self: another rank; not p2p: GYRE_P2P_DISABLE leaves it "
      "out; not shm: GYRE_SHM_DISABLE leaves it out; not rdma: GYRE_IB_DISABLE leaves it out; not "
      "ucx: "
      "GYRE_TRANSPORT does not name it");
  CHECK(text_of(machine, true, settings_with("ib")).find("\"ib\" is not a transport") !=
        std::string::npos);
}

TEST_CASE("a process says of each peer what its transports know", "[transports]") {
  CHECK(text_of(process_on(1, 2)) ==
        "shm: same host and user, SYS, 12.5 GB/s; then tcp: over loopback, at 10.0.0.1:4711, no "
        "figure");
  CHECK(text_of(process_on(2, 2)) ==
        "tcp: at 10.0.0.2:4711, over loopback, no figure; not shm: another host");
  CHECK(text_of(process_on(2, 2), settings_with("shm")) == "none; not shm: another host");
  CHECK(text_of(process_on(1, 1)) == "self: own memory, SYS, 12.5 GB/s");
  // Nobody has announced a network here.
  CHECK(text_of(process_on(2, 2), {}).find("; not rdma: ") != std::string::npos);
}

TEST_CASE("described machines expect their transports", "[transports]") {
  for (const std::string& name : tests::machine_names()) {
    const Topology machine = tests::described_machine(name);
    const nlohmann::ordered_json now = {{"1 host", paths_of(machine, true)},
                                        {"2 hosts", paths_of(machine, false)}};
    INFO(name << " has now:\n" << now.dump(2));
    CHECK(nlohmann::ordered_json::parse(tests::expectation_text(name))["transports"] == now);
  }
}

}  // namespace candidates_test
