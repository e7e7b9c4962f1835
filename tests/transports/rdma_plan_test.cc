// rdma by the ports that a plan has for a connection: its bytes cross there and nowhere else, other
// ports take over when they must, and the log says so.
#include "lib/base/log.h"
#include "tests/support/base/log_file.h"
#include "tests/support/catch.h"
#include "tests/support/transports/rdma_pair.h"
#include "transports/rdma/rail_ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rdma_plan_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::uint32_t long_bytes = 768 << 10;
constexpr FifoShape long_shape{4, 2, long_bytes};

std::string nic(int index) { return fmt::format("fake{}", index); }
std::string port(int index) { return nic(index) + ":1"; }

// The devices that a long message leaves by.
std::vector<std::string> ways_of(Network& network, JoinedPair& pair, int devices) {
  REQUIRE(text_of(pair.link.status) == "");
  std::vector<std::uint64_t> before;
  for (int i = 0; i < devices; ++i) before.push_back(network.fake.bytes_by(nic(i)));
  pair.send(long_bytes, 0);
  CHECK(pair.arrives(long_bytes, 0));
  std::vector<std::string> used;
  for (int i = 0; i < devices; ++i)
    if (network.fake.bytes_by(nic(i)) > before[static_cast<std::size_t>(i)] + long_bytes / 100)
      used.push_back(nic(i));
  return used;
}

using Names = std::vector<std::string>;

class InfoLog {
 public:
  InfoLog() { REQUIRE(configure_log(LogLevel::info, file_.path()).ok()); }
  // How many lines end so.
  std::ptrdiff_t count(std::string_view end) const {
    return std::ranges::count_if(file_.lines(),
                                 [&](const std::string& line) { return line.ends_with(end); });
  }
  bool has(std::string_view part) const {
    return std::ranges::any_of(
        file_.lines(), [&](const std::string& line) { return line.find(part) != line.npos; });
  }

 private:
  const test::LogFile file_;
};

}  // namespace

TEST_CASE("the connection of ring i crosses by port i, at both ends", "[rdma]") {
  constexpr int devices = 8;
  for (int i = 0; i < devices; ++i) {
    const int there = devices - 1 - i;
    CAPTURE(i, there);
    Network network(many_nics(devices));
    const InfoLog log;
    JoinedPair pair(long_shape, {.receiving = {port(there)}, .sending = {port(i)}});
    CHECK(ways_of(network, pair, devices) == Names{nic(i)});
    CHECK(log.has(fmt::format("rdma to rank 0: port {} to 10.0.0.{} ({} of ", port(i), there + 1,
                              port(there))));
    CHECK(log.has(fmt::format("rdma from rank 1: port {} to 10.0.0.{} ({} of ", port(there), i + 1,
                              port(i))));
    CHECK(log.count("queue pairs: 1, planned for its rings") == 2);
    CHECK(log.count("queue pairs: 1, in reserve") == 6);
    // Nothing comes by another port of the receiver's.
    network.fake.hold_arrivals(nic(there));
    pair.send(long_bytes, 1);
    REQUIRE(text_of(pair.turn()) == "");
    REQUIRE(text_of(pair.turn()) == "");
    CHECK_FALSE(pair.in.has_message());
    network.fake.show_arrivals(nic(there));
    CHECK(pair.arrives(long_bytes, 1));
  }
}

TEST_CASE("a connection of several rings crosses by the ports of all of them", "[rdma]") {
  Network network(many_nics(8));
  JoinedPair pair(long_shape, {.receiving = {port(6), port(2)}, .sending = {port(5), port(1)}});
  CHECK(ways_of(network, pair, 8) == Names{nic(1), nic(5)});
}

TEST_CASE("without a plan a connection takes the first four ports", "[rdma]") {
  Network network(many_nics(8));
  const InfoLog log;
  JoinedPair pair(long_shape);
  CHECK(ways_of(network, pair, 8) == Names{nic(0), nic(1), nic(2), nic(3)});
  CHECK(log.count("queue pairs: 1") == 8);
  CHECK_FALSE(log.has("planned"));
}

TEST_CASE("where a planned port is dead at either end, others carry all, and the log says why",
          "[rdma]") {
  struct Case {
    LinkPorts ports;
    const char* line;
    Names used;
  };
  const std::string unused = ": a port that its rings were planned for is not used: ";
  for (const Case& one : std::initializer_list<Case>{
           {{{"fake5:1"}, {"fake4:1"}}, "rdma from rank 1{}fake5:1: down", {}},
           {{{"fake5:1"}, {"fake4:1"}},
            "rdma to rank 0{}fake4:1: the peer does not take its port",
            {}},
           {{{"fake4:1"}, {"fake5:1"}}, "rdma to rank 0{}fake5:1: down", {nic(0), nic(1), nic(2)}},
           {{{"mlx5_0:1"}, {"fake4:1"}},
            "rdma from rank 1{}mlx5_0:1: there is no RDMA port of that name",
            {}}}) {
    CAPTURE(one.line);
    FakeVerbsOptions machine = many_nics(6);
    machine.devices[5].ports[0].state = IBV_PORT_DOWN;
    Network network(machine);
    const InfoLog log;
    JoinedPair pair(long_shape, one.ports);
    const Names used = one.used.empty() ? Names{nic(0), nic(1), nic(2), nic(3)} : one.used;
    CHECK(ways_of(network, pair, 6) == used);
    CHECK(log.count(fmt::format(fmt::runtime(one.line), unused)) == 1);
    CHECK_FALSE(log.has("planned for its rings"));
  }
}

TEST_CASE("a planned port that goes down hands over to the ports in reserve", "[rdma]") {
  constexpr int devices = 6;
  Network network(many_nics(devices));
  const InfoLog log;
  JoinedPair pair(long_shape, {.receiving = {port(4)}, .sending = {port(5)}});
  CHECK(ways_of(network, pair, devices) == Names{nic(5)});
  pair.send(3000, 1);
  REQUIRE(text_of(pair.link.sender->progress()) == "");
  network.fake.set_port(nic(5), 1, IBV_PORT_DOWN);
  REQUIRE(text_of(pair.link.sender->look_at_peer(50 * ns_per_s, ns_per_s)) == "");
  CHECK(pair.arrives(3000, 1));
  CHECK(log.has("port fake5:1 to 10.0.0.5"));
  CHECK(log.has("is lost, and the connection goes on over port fake0:1"));
  CHECK(ways_of(network, pair, devices) == Names{nic(0), nic(1), nic(2)});
}

TEST_CASE("with a plan every failure of a completion or a post is made good", "[rdma]") {
  for (const std::string_view call : {"", "post_send"})
    for (int k = 1;; ++k) {
      CAPTURE(call, k);
      Network network(many_nics(3));
      if (call.empty())
        network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, k);
      else
        network.fake.fail_call(call, k);
      CHECK(text_of(live_through({.receiving = {port(1)}, .sending = {port(2)}})) == "");
      CHECK(network.fake.live() == "");
      CHECK(network.fake.unexpected() == 0);
      if ((call.empty() ? network.fake.completions() : network.fake.calls(call)) < k) break;
    }
}

namespace {

// "fake2:1/1 fake0:1; fake7:1: down": ports with their places in the plan, and those not used.
std::string text_of(const std::vector<RdmaWay>& ways, const std::vector<std::string>& unused) {
  std::string text;
  for (const RdmaWay& way : ways) {
    text += text.empty() ? "" : " ";
    text += way.port == nullptr ? "-" : way.port->name();
    if (way.planned > 0) text += fmt::format("/{}", way.planned);
  }
  for (const std::string& one : unused) text += "; " + one;
  return text;
}

FakeNicOptions on_infiniband(const std::string& name, const std::string& gid) {
  return {.name = name,
          .ports = {{.link_layer = IBV_LINK_LAYER_INFINIBAND, .speed = 128, .gids = {gid}}}};
}

}  // namespace

TEST_CASE("a receiver puts planned ports first, and says why it takes one not", "[rdma]") {
  FakeVerbsOptions machine = many_nics(6);
  machine.devices[5].ports[0].state = IBV_PORT_DOWN;
  machine.devices.push_back({.name = "slow", .ports = {{.speed = 1, .gids = {"10.0.0.9"}}}});
  machine.devices.push_back({.name = "local", .ports = {{.gids = {"fd00::9"}}}});
  const FakeVerbs fake(machine);
  loaded::SharedVerbs shared(&fake.table());
  const auto ports = find_rdma_ports(shared, {});
  REQUIRE(ports.ok());
  const auto chosen = [&](const Names& planned, const IsNearPort& is_near = nullptr) {
    const ReceivingPorts found = receiving_ports(*ports, "rdma=roce4", planned, is_near);
    return text_of(found.ways, found.unused);
  };
  CHECK(chosen({}) == "fake0:1 fake1:1 fake2:1 fake3:1");
  CHECK(chosen({"fake1:1"}) == "fake1:1/1 fake0:1 fake2:1 fake3:1");
  CHECK(chosen({"fake4:1", "fake1:1"}) == "fake4:1/1 fake1:1/2 fake0:1 fake2:1");
  // Two pairs of ports may have one end in common.
  CHECK(chosen({"fake4:1", "fake4:1"}) == "fake4:1/1 fake4:1/2 fake0:1 fake1:1");
  CHECK(chosen({"fake5:1", "fake4:1"}) == "fake4:1/2 fake0:1 fake1:1 fake2:1; fake5:1: down");
  CHECK(chosen({"slow:1"}) ==
        "fake0:1 fake1:1 fake2:1 fake3:1; slow:1: it has less than a "
        "quarter of the fastest one's rate");
  CHECK(chosen({"local:1"}) ==
        "fake0:1 fake1:1 fake2:1 fake3:1; local:1: it is on no network "
        "that the peer is on");
  CHECK(chosen({"eth0"}) ==
        "fake0:1 fake1:1 fake2:1 fake3:1; eth0: there is no RDMA port of that name");
  CHECK(chosen({"fake0:1", "fake1:1", "fake2:1", "fake3:1", "fake4:1"}) ==
        "fake0:1/1 fake1:1/2 fake2:1/3 fake3:1/4; fake4:1: a connection takes 4 ports at most");
  // Of a rank on a GPU, those far from it are left out, unless they are planned or no other is
  // near.
  const auto is_near = [](std::string_view name) { return name >= "fake3:1" && name < "local"; };
  CHECK(chosen({}, is_near) == "fake3:1 fake4:1");
  CHECK(chosen({"fake4:1"}, is_near) == "fake4:1/1 fake3:1");
  CHECK(chosen({"fake1:1"}, is_near) == "fake1:1/1 fake3:1 fake4:1");
  CHECK(chosen({}, [](std::string_view) { return false; }) == "fake0:1 fake1:1 fake2:1 fake3:1");
}

TEST_CASE("a sender joins the planned ports of both ends, and others of the same number",
          "[rdma]") {
  FakeVerbsOptions machine = many_nics(5);
  machine.devices[4].ports[0].state = IBV_PORT_DOWN;
  machine.devices.push_back(on_infiniband("ib0", "fe80::2:c903:1"));
  const FakeVerbs fake(machine);
  loaded::SharedVerbs shared(&fake.table());
  const auto ports = find_rdma_ports(shared, {});
  REQUIRE(ports.ok());
  // The receiver's rails: by their places in the plan.
  const auto chosen = [&](const std::vector<int>& rails, const Names& planned,
                          const IsNearPort& is_near = nullptr) {
    std::vector<RdmaAddress> there;
    for (const int place : rails)
      there.push_back({.network = RdmaNetwork::roce_ipv4,
                       .planned = static_cast<std::uint8_t>(place),
                       .place = "a port"});
    const SendingPorts found = sending_ports(*ports, there, planned, is_near);
    return text_of(found.ways, found.unused);
  };
  CHECK(chosen({0, 0, 0, 0}, {}) == "fake0:1 fake1:1 fake2:1 fake3:1");
  CHECK(chosen({1, 0, 0, 0}, {"fake2:1"}) == "fake2:1/1 fake0:1 fake1:1 fake3:1");
  CHECK(chosen({1, 2, 0}, {"fake3:1", "fake0:1"}) == "fake3:1/1 fake0:1/2 fake1:1");
  CHECK(chosen({2, 0, 0}, {"fake3:1", "fake0:1"}) ==
        "fake0:1/2 fake1:1 fake2:1; fake3:1: the peer does not take its port");
  // A rail that is planned at one end alone may lead nowhere.
  CHECK(chosen({1, 0, 0}, {"fake4:1"}) == "- fake0:1 fake1:1; fake4:1: down");
  CHECK(chosen({1}, {"fake4:1"}) == "fake0:1; fake4:1: down");
  CHECK(chosen({1, 0}, {"ib0:1"}) ==
        "- fake0:1; ib0:1: it is on another network than the peer's port (a port)");
  // A peer that says more than was planned.
  CHECK(chosen({9, 0}, {"fake1:1"}) == "fake0:1 fake1:1; fake1:1: the peer does not take its port");
  CHECK(chosen({1, 0}, {}) == "fake0:1 fake1:1");
  const auto is_near = [](std::string_view name) { return name == "fake2:1" || name == "fake3:1"; };
  CHECK(chosen({0, 0, 0}, {}, is_near) == "fake2:1 fake3:1 fake2:1");
  CHECK(chosen({1, 0}, {"fake0:1"}, is_near) == "fake0:1/1 fake2:1");
}

}  // namespace rdma_plan_test
