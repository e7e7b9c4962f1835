// UCX's transports as a part of the host: joined to its ports, unknown, failed, written and read,
// and what they are worth for the paths between ranks.
#include "lib/topology/describe.h"
#include "lib/topology/discover.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/routes.h"
#include "lib/topology/topology_file.h"
#include "lib/topology/transport_path.h"
#include "tests/support/catch.h"
#include "tests/support/fake_ucx/fake_ucx.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ucx_transports_test {

using namespace gyre;
using namespace gyre::topology;
using tests::FakeUcx;
using tests::FakeUcxOptions;

namespace {

int add_port(Topology& host, const std::string& name, int number, bool has_verbs,
             double gigabytes_per_s) {
  TopologyNode nic;
  nic.kind = NodeKind::nic;
  nic.parent = 0;
  nic.bus_id = fmt::format("0000:{:02x}:00.0", host.nodes.size());
  nic.gigabytes_per_s = 31.5;
  TopologyNode port;
  port.kind = NodeKind::port;
  port.parent = host.add(nic);
  port.name = name;
  port.gigabytes_per_s = gigabytes_per_s;
  port.port.emplace();
  port.port->number = number;
  port.port->has_verbs = has_verbs;
  return host.add(port);
}

// Three interfaces and a device of two ports; the kernel knows the speed of eth1, of slow and of
// the device.
Topology five_ports() {
  Topology host = flat_topology("host", {});
  add_port(host, "eth0", 1, false, 0);
  add_port(host, "eth1", 1, false, 12.5);
  add_port(host, "slow", 1, false, 0.0125);
  add_port(host, "mlx5_0", 1, true, 25);
  add_port(host, "mlx5_0", 2, true, 25);
  return host;
}

const TopologyNode& port(const Topology& host, std::string_view name, int number = 1) {
  const auto found = std::ranges::find_if(host.nodes, [&](const TopologyNode& node) {
    return node.kind == NodeKind::port && node.name == name && node.port->number == number;
  });
  REQUIRE(found != host.nodes.end());
  return *found;
}

// 100 Mb/s less the headers of Ethernet and TCP, and the latency that follows, as UCX calculates.
constexpr double unknown_bytes_per_s = 12.5e6 * (1500 - 40) / (1500 + 38);
constexpr double unknown_latency_s = 576.0 / 100e6 + 5.2e-6;

FakeUcxOptions transports() {
  return {.transports = {
              {"tcp", "tcp", "eth0", 0, 1.1e9, 5.3e-6, 0, 50e-6},
              {"tcp", "tcp", "eth1", 0, unknown_bytes_per_s, unknown_latency_s, 0, 50e-6},
              {"tcp", "tcp", "slow", 0, unknown_bytes_per_s, unknown_latency_s, 0, 50e-6},
              {"self", "self", "memory", 19e9, 0, 0, 0, 10e-9},
              {"mlx5_0", "rc_verbs", "mlx5_0:1", 0, 23.8e9, 0.6e-6, 1e-9, 75e-9},
              {"mlx5_0", "rc_mlx5", "mlx5_0:1", 0, 23.9e9, 0.6e-6, 1e-9, 40e-9},
              {"mlx5_0", "ud_verbs", "mlx5_0:2", 0, 23.7e9, 0.6e-6, 0, 105e-9},
          }};
}

void ask(Topology& host, const FakeUcxOptions& options) {
  const FakeUcx fake(options);
  const auto table = fake.load();
  REQUIRE(table.ok());
  add_ucx(host, **table);
  CHECK(check(host).message() == "");
  CHECK(fake.open_objects() == 0);
}

Topology asked() {
  Topology host = five_ports();
  ask(host, transports());
  CHECK(host.missed.empty());
  return host;
}

std::size_t count_transports(const Topology& host) {
  std::size_t count = 0;
  for (const TopologyNode& node : host.nodes) count += node.ucx.size();
  return count;
}

std::string path_between_hosts(const Topology& host) {
  return path_text(find_path({0, &host, 0}, {1, &host, 0}, Medium::sockets));
}

// One interface, of a speed that the kernel does not know, and what UCX says of it.
Topology one_interface(double shared_bytes_per_s) {
  Topology host = flat_topology("host", {});
  add_port(host, "eth0", 1, false, 0);
  ask(host, {.transports = {{"tcp", "tcp", "eth0", 0, shared_bytes_per_s, 5.3e-6, 0, 50e-6}}});
  return host;
}

}  // namespace

TEST_CASE("UCX's transports stand at the port that their device is", "[topology][ucx]") {
  const Topology host = asked();
  REQUIRE(port(host, "eth0").ucx.size() == 1);
  const UcxTransport& tcp = port(host, "eth0").ucx.front();
  CHECK(tcp.transport == "tcp");
  CHECK(tcp.device == "eth0");
  CHECK(tcp.dedicated_gigabytes_per_s == 0);
  CHECK(tcp.shared_gigabytes_per_s == Approx(1.1));
  CHECK(tcp.latency_us == Approx(5.3));
  CHECK(tcp.overhead_us == Approx(50));
  REQUIRE(port(host, "mlx5_0", 1).ucx.size() == 2);
  CHECK(port(host, "mlx5_0", 1).ucx[1].transport == "rc_mlx5");
  CHECK(port(host, "mlx5_0", 1).ucx[1].latency_per_endpoint_us == Approx(0.001));
  REQUIRE(port(host, "mlx5_0", 2).ucx.size() == 1);
  CHECK(port(host, "mlx5_0", 2).ucx[0].transport == "ud_verbs");
  // What is no port is the host's.
  REQUIRE(host.node(0).ucx.size() == 1);
  CHECK(host.node(0).ucx[0].device == "memory");
  CHECK(host.node(0).ucx[0].dedicated_gigabytes_per_s == Approx(19));
}

TEST_CASE("UCX's 100 Mb/s are a speed only where the kernel knows it", "[topology][ucx]") {
  const Topology unknown = one_interface(unknown_bytes_per_s);
  const UcxTransport& tcp = port(unknown, "eth0").ucx.front();
  CHECK(tcp.gigabytes_per_s() == 0);
  CHECK(tcp.latency_us == 0);  // it follows from the speed
  CHECK(tcp.overhead_us == Approx(50));
  CHECK_THAT(describe(unknown),
             tests::has_text("UCX tcp on eth0: speed not known, overhead 50 us"));
  const Topology known = asked();
  CHECK(port(known, "slow").ucx.front().gigabytes_per_s() == Approx(unknown_bytes_per_s / 1e9));
  CHECK(port(known, "slow").ucx.front().latency_us == Approx(10.96));
}

TEST_CASE("figures of UCX that are none count as not known", "[topology][ucx]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Topology host = five_ports();
  ask(host, {.transports = {{"tcp", "tcp", "eth0", -1, infinity, std::nan(""), -infinity, 1e300}}});
  const UcxTransport& tcp = port(host, "eth0").ucx.front();
  CHECK(tcp == UcxTransport{.transport = "tcp", .device = "eth0"});
}

TEST_CASE("a call of UCX that fails is told by its name, and frees what was made",
          "[topology][ucx]") {
  struct Step {
    std::string call, missed;
  };
  const std::string io = " failed (Input/output error)";
  for (const Step& step : {
           Step{"ucs_async_context_create", "UCX's transports: ucs_async_context_create" + io},
           Step{"uct_worker_create", "UCX's transports: uct_worker_create" + io},
           Step{"uct_query_components", "UCX's transports: uct_query_components" + io},
           Step{"uct_component_query", "UCX's transports of a component: uct_component_query" + io},
           Step{"uct_md_config_read", "UCX's transports of tcp tcp: uct_md_config_read" + io},
           Step{"uct_md_open", "UCX's transports of tcp tcp: uct_md_open" + io},
           Step{"uct_md_query_tl_resources",
                "UCX's transports of tcp tcp: uct_md_query_tl_resources" + io},
           Step{"uct_md_iface_config_read", "UCX's tcp on eth0: uct_md_iface_config_read" + io},
           Step{"uct_iface_open", "UCX's tcp on eth0: uct_iface_open" + io},
           Step{"uct_iface_query", "UCX's tcp on eth0: uct_iface_query" + io},
       }) {
    CAPTURE(step.call);
    FakeUcxOptions options = transports();
    options.failing = step.call;
    Topology host = five_ports();
    ask(host, options);
    CHECK(count_transports(host) == 0);
    REQUIRE_FALSE(host.missed.empty());
    CHECK(host.missed.front() == step.missed);
  }
}

TEST_CASE("what UCX has said before a call fails stays", "[topology][ucx]") {
  FakeUcxOptions options = transports();
  options.failing = "uct_iface_open";
  options.failing_from = 5;
  Topology host = five_ports();
  ask(host, options);
  CHECK(count_transports(host) == 4);
  CHECK(host.missed ==
        std::vector<std::string>{
            "UCX's rc_verbs on mlx5_0:1: uct_iface_open failed (Input/output error)",
            "UCX's rc_mlx5 on mlx5_0:1: uct_iface_open failed (Input/output error)",
            "UCX's ud_verbs on mlx5_0:2: uct_iface_open failed (Input/output error)"});
  // The second question to a component is for its domains.
  options.failing = "uct_component_query";
  options.failing_from = 2;
  Topology other = five_ports();
  ask(other, options);
  CHECK(other.missed.front() ==
        "UCX's transports of tcp: uct_component_query failed (Input/output error)");
}

TEST_CASE("a transport that UCX names twice is taken once, and told", "[topology][ucx]") {
  FakeUcxOptions options = transports();
  options.transports.push_back(options.transports.front());
  Topology host = five_ports();
  ask(host, options);
  CHECK(port(host, "eth0").ucx.size() == 1);
  CHECK(host.missed == std::vector<std::string>{"UCX's tcp on eth0: UCX has it twice"});
}

TEST_CASE("UCX's transports come back from hwloc's XML as they were", "[topology][ucx]") {
  const Topology host = asked();
  const std::string file = write_hwloc_xml(host);
  INFO(file);
  const Result<Topology> again = read_topology(file);
  REQUIRE(again.ok());
  CHECK(count_transports(*again) == 7);
  CHECK(again->nodes == host.nodes);
  CHECK(difference(host, *again).empty());
  Topology other = host;
  other.nodes[0].ucx[0].overhead_us = 1;
  CHECK_FALSE(other == host);
  CHECK_THAT(difference(host, other), tests::has_text("+   UCX self on memory"));
}

TEST_CASE("files with wrong words of UCX are refused with the reason", "[topology][ucx]") {
  struct Case {
    std::string words, reason;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"transport=tcp device=eth0 latency_us=fast", "latency_us=\"fast\" is no figure"},
           {"transport=tcp device=eth0 shared_gigabytes_per_s=1e12",
            "has UCX's tcp with what is no figure"},
           {"transport=tcp", "has a transport of UCX without a name"},
           {"transport=tcp device=eth0\"/><info name=\"GyreUcx\" value=\"transport=tcp device=eth0",
            "has UCX's tcp on eth0 twice"}}) {
    CAPTURE(one.words);
    const auto read = read_topology(
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\">"
        "<info name=\"GyreUcx\" value=\"" +
        one.words + "\"/></object></topology>");
    REQUIRE_FALSE(read.ok());
    CHECK_THAT(std::string(read.status().message()), tests::has_text(one.reason));
  }
  Topology host = flat_topology("host", {});
  TopologyNode core;
  core.kind = NodeKind::core;
  core.parent = 0;
  core.ucx.push_back({.transport = "tcp", .device = "eth0"});
  host.add(core);
  CHECK_THAT(std::string(check(host).message()), tests::has_text("neither a port nor the host"));
}

TEST_CASE("a port of a speed that the kernel does not know has UCX's", "[topology][ucx]") {
  const Topology nothing = one_interface(unknown_bytes_per_s);
  CHECK(path_between_hosts(nothing) == "by eth0 to eth0, 1.25 GB/s (assumed)");
  const Topology host = one_interface(2.9e9);
  CHECK(path_between_hosts(host) == "by eth0 to eth0, 2.9 GB/s (by UCX)");
  CHECK_THAT(describe(host),
             tests::has_text("port eth0: protocol not known, up, 2.9 GB/s (by UCX)"));
  CHECK_THAT(write_nccl_xml(host), tests::has_text("speed=\"23200\""));
  CHECK_THAT(write_nccl_xml(nothing), tests::has_text("speed=\"0\""));
}

TEST_CASE("the kernel's speed of a port is taken before UCX's", "[topology][ucx]") {
  Topology host = flat_topology("host", {});
  add_port(host, "eth1", 1, false, 12.5);
  const std::string before = path_between_hosts(host);
  ask(host, {.transports = {{"tcp", "tcp", "eth1", 0, 11.8e9, 5.2e-6, 0, 50e-6}}});
  CHECK(path_between_hosts(host) == before);
  CHECK(before == "by eth1 to eth1, 12.5 GB/s");
}

TEST_CASE("UCX's speeds choose the ports of a search, and no figure changes none",
          "[topology][ucx]") {
  Topology host = flat_topology("host", {});
  const int first = add_port(host, "eth0", 1, false, 0);
  const int second = add_port(host, "eth1", 1, false, 0);
  CHECK(usable_ports(host) == std::vector{first, second});
  Topology other = host;
  ask(other, {.transports = {{"tcp", "tcp", "eth0", 0, unknown_bytes_per_s, 1e-5, 0, 5e-5},
                             {"tcp", "tcp", "eth1", 0, unknown_bytes_per_s, 1e-5, 0, 5e-5}}});
  CHECK(usable_ports(other) == std::vector{first, second});
  ask(host, {.transports = {{"tcp", "tcp", "eth0", 0, 0.11e9, 1e-5, 0, 5e-5},
                            {"tcp", "tcp", "eth1", 0, 2.9e9, 1e-5, 0, 5e-5}}});
  CHECK(usable_ports(host) == std::vector{second});
}

TEST_CASE("the library that is installed describes its transports", "[topology][ucx]") {
  const auto table = loaded::load_ucx();
  if (!table.ok()) {
    WARN("not tried: " << table.status().message());
    return;
  }
  Topology host = flat_topology("host", {});
  add_ports(host, "/sys");
  add_ucx(host, **table);
  CHECK(check(host).message() == "");
  std::vector<UcxTransport> found;
  for (const TopologyNode& node : host.nodes)
    found.insert(found.end(), node.ucx.begin(), node.ucx.end());
  for (const std::string& one : host.missed) UNSCOPED_INFO(one);
  // Each release has it, on any host.
  const auto self = std::ranges::find(found, "self", &UcxTransport::transport);
  REQUIRE(self != found.end());
  CHECK(self->dedicated_gigabytes_per_s > 1);
  for (const UcxTransport& one : found) {
    CAPTURE(one.transport, one.device);
    // More is a layout that is read wrongly.
    CHECK(one.gigabytes_per_s() < 10'000);
    CHECK(one.latency_us < 10'000);
    CHECK(one.overhead_us < 10'000);
  }
}

}  // namespace ucx_transports_test
