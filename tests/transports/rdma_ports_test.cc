// Which port and which GID rdma takes, on machines of fake devices.
#include "tests/support/catch.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "transports/rdma/ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace rdma_ports_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

// "fake0:1 100 roce4@2 roce6@3; skipped fake1:1: down", or the error.
std::string found_on(const FakeVerbsOptions& machine, const RdmaOptions& options = {}) {
  const FakeVerbs fake(machine);
  loaded::SharedVerbs shared(&fake.table());
  const auto ports = find_rdma_ports(shared, options);
  if (!ports.ok()) return "error: " + std::string(ports.status().message());
  std::vector<std::string> texts;
  for (const RdmaPort& port : ports->usable) {
    std::string text = fmt::format("{} {:.3g}", port.name(), port.gigabits_per_s());
    for (const RdmaGid& gid : port.gids)
      text += fmt::format(" {}@{}={}", network_word(gid.network), gid.index, gid_text(gid.gid));
    texts.push_back(text);
  }
  for (const std::string& skipped : ports->skipped) texts.push_back("skipped " + skipped);
  return fmt::format("{}", fmt::join(texts, "; "));
}

FakeNicOptions infiniband(const std::string& name, ibv_port_state state = IBV_PORT_ACTIVE) {
  return {.name = name,
          .ports = {{.state = state,
                     .link_layer = IBV_LINK_LAYER_INFINIBAND,
                     .speed = 128,
                     .gids = {"fe80::2:c903:1", "fe80::2:c903:2"}}}};
}

FakeVerbsOptions three_nics() {
  FakeNicOptions two_ports{.name = "slow"};
  two_ports.ports = {{.speed = 4}, {.state = IBV_PORT_DOWN}};
  return {.devices = {two_ports, {.name = "fast", .ports = {{.speed = 64}}}, infiniband("ib0")}};
}

RdmaOptions hca(const std::string& text) { return {.hca = text}; }

}  // namespace

TEST_CASE("the fastest active port comes first, and a dead one says why", "[rdma]") {
  CHECK(found_on(three_nics()) ==
        "ib0:1 400 ib@0=fe80::2:c903:1; "
        "fast:1 200 roce4@2=10.0.0.1 roce6@3=fd00::1 roce6-local@0=fe80::1; "
        "slow:1 40 roce4@2=10.0.0.1 roce6@3=fd00::1 roce6-local@0=fe80::1; skipped slow:2: down");
  CHECK(found_on({.devices = {}}) == "");
  CHECK(found_on({.devices = {infiniband("ib0", IBV_PORT_INIT)}}) ==
        "skipped ib0:1: initializing: on InfiniBand it waits for a subnet manager");
}

TEST_CASE("a GID is taken by its type and address, wherever it is in the table", "[rdma]") {
  const auto with_gids = [](std::vector<std::string> gids) {
    return FakeVerbsOptions{.devices = {{.ports = {{.gids = std::move(gids)}}}}};
  };
  CHECK(found_on(with_gids({"fd00::7", "10.0.0.9", "10.0.0.1"})) ==
        "fake0:1 100 roce4@1=10.0.0.9 roce6@0=fd00::7");
  CHECK(found_on(with_gids({"v1:10.0.0.1", "::", "fe80::1"})) ==
        "fake0:1 100 roce6-local@2=fe80::1");
  CHECK(found_on(with_gids({"v1:10.0.0.1"})) ==
        "skipped fake0:1: it has no RoCE v2 GID: give its network interface an address");
  CHECK(found_on(with_gids({"10.0.0.1", "10.0.0.2"}), {.gid_index = 1}) ==
        "fake0:1 100 roce4@1=10.0.0.2");
  CHECK(found_on(with_gids({"10.0.0.1", "v1:10.0.0.1"}), {.gid_index = 7}) ==
        "error: GYRE_IB_GID_INDEX=7: port fake0:1 has no such GID; it has 0 10.0.0.1 (RoCE v2, "
        "IPv4), 1 10.0.0.1 (RoCE v1)");
}

TEST_CASE("GYRE_IB_HCA chooses ports by prefix, exactly, by port, or leaves some out", "[rdma]") {
  struct Case {
    const char *setting, *device;
    int port;
    bool matches;
  };
  for (const Case& one : std::initializer_list<Case>{{"", "mlx5_0", 1, true},
                                                     {"mlx5", "mlx5_0", 1, true},
                                                     {"mlx5_1", "mlx5_0", 1, false},
                                                     {"mlx5_1", "mlx5_10", 1, true},
                                                     {"=mlx5_1", "mlx5_10", 1, false},
                                                     {"=mlx5_1,mlx5_10", "mlx5_10", 1, true},
                                                     {"mlx5_0:2", "mlx5_0", 1, false},
                                                     {"mlx5_0:2", "mlx5_0", 2, true},
                                                     {"^mlx5_0", "mlx5_0", 1, false},
                                                     {"^mlx5_0", "mlx5_1", 1, true},
                                                     {"^=mlx5_1:1", "mlx5_1", 1, false},
                                                     {"^=mlx5_1:1", "mlx5_1", 2, true}}) {
    CAPTURE(one.setting, one.device, one.port);
    const auto matches = hca_matches(one.setting, one.device, one.port);
    REQUIRE(matches.ok());
    CHECK(*matches == one.matches);
  }
  for (const char* wrong :
       {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256", "mlx5_0,", ",a", "^", "=", ":1"}) {
    CAPTURE(wrong);
    CHECK(hca_matches(wrong, "mlx5_0", 1).status().code() == Code::InvalidUsage);
  }
}

TEST_CASE("a setting that matches no port is an error that says what there is", "[rdma]") {
  CHECK(found_on(three_nics(), hca("fast:x")) ==
        "error: GYRE_IB_HCA=\"fast:x\": \"x\" is not a port");
  CHECK(found_on(three_nics(), hca("mlx5")) ==
        "error: GYRE_IB_HCA=\"mlx5\" matches no port; there are slow:1, slow:2, fast:1, ib0:1");
  CHECK(found_on(three_nics(), hca("fast")) ==
        "fast:1 200 roce4@2=10.0.0.1 roce6@3=fd00::1 roce6-local@0=fe80::1; "
        "skipped slow:1: GYRE_IB_HCA leaves it out; skipped slow:2: GYRE_IB_HCA leaves it out; "
        "skipped ib0:1: GYRE_IB_HCA leaves it out");
  // There is nothing to choose from: the same variable may be set on all hosts.
  CHECK(found_on({.devices = {}}, hca("mlx5")) == "");
}

TEST_CASE("two ends take the best network that both have", "[rdma]") {
  const FakeVerbs fake(three_nics());
  loaded::SharedVerbs shared(&fake.table());
  const auto ports = find_rdma_ports(shared, {});
  REQUIRE(ports.ok());
  CHECK(announce_networks(ports->usable) == "rdma=ib/fe80000000000000,roce4,roce6,roce6-local");
  const auto way = [&](const char* announced) {
    std::vector<std::string> found;
    for (const RdmaWay& one : find_ways(ports->usable, announced))
      found.push_back(fmt::format("{} {}", one.port->name(), network_word(one.network)));
    return fmt::format("{}", fmt::join(found, ", "));
  };
  // The slow one has less than a quarter of the fast one's rate.
  CHECK(way("rdma=roce6,roce4") == "fast:1 roce4");
  CHECK(way("rdma=roce6") == "fast:1 roce6");
  CHECK(way("rdma=roce6-local") == "fast:1 roce6-local");
  CHECK(way("rdma=ib/fe80000000000000,roce4") == "ib0:1 ib, fast:1 roce4");
  CHECK(way("rdma=ib/fe80000000000001") == "");
  CHECK(way("rdma=roce") == "");
  // What a plug-in announces may stand before it and behind.
  CHECK(way(",plugin:some:00,rdma=roce4,plugin:more:,") == "fast:1 roce4");
  CHECK(way("rdma=") == "");
  CHECK(way("") == "");
}

}  // namespace rdma_ports_test
