// The search beyond the described machines: unequal hosts, odd counts, meshes of NVLink, orders of
// processors, limits of steps, and what is refused.
#include "lib/topology/channels.h"
#include "lib/topology/nccl_xml.h"
#include "lib/topology/paths.h"
#include "lib/topology/routes.h"
#include "lib/topology/topology_file.h"
#include "lib/topology/tour.h"
#include "tests/support/catch.h"
#include "tests/support/topology/search_check.h"
#include "tests/topologies/described_machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace search_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

FoundChannels find(const Cluster& cluster, ChannelPattern pattern,
                   const SearchLimits& limits = {}) {
  Result<FoundChannels> found =
      pattern == ChannelPattern::ring ? find_rings(cluster, limits) : find_trees(cluster, limits);
  INFO(found.status().message());
  REQUIRE(found.ok());
  return std::move(found).value();
}

void check_found(const Cluster& cluster, double share) {
  for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
    const FoundChannels found = find(cluster, pattern);
    INFO(reason_text(found));
    CHECK(tests::fault_of(cluster, found) == "");
    CHECK(found.gigabytes_per_s >= share * found.bound_gigabytes_per_s);
  }
}

std::string refusal(const Cluster& cluster) {
  const Result<FoundChannels> rings = find_rings(cluster), trees = find_trees(cluster);
  REQUIRE_FALSE(rings.ok());
  REQUIRE_FALSE(trees.ok());
  CHECK(rings.status().message() == trees.status().message());
  return std::string(rings.status().message());
}

// GPUs on one PCIe switch, with random NVLinks between them.
Topology random_mesh(std::mt19937_64& random, int gpus) {
  std::string inside;
  std::vector<std::string> links(static_cast<std::size_t>(gpus));
  const auto bus = [](int gpu) { return fmt::format("0000:{:02x}:00.0", gpu + 2); };
  for (int a = 0; a < gpus; ++a)
    for (int b = a + 1; b < gpus; ++b) {
      const int count = static_cast<int>(random() % 4);
      if (count == 0) continue;
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)})
        links[static_cast<std::size_t>(from)] +=
            fmt::format("<nvlink target=\"{}\" count=\"{}\"/>", bus(to), count);
    }
  for (int gpu = 0; gpu < gpus; ++gpu)
    inside += fmt::format(
        "<pci busid=\"{}\" class=\"0x030200\" link_speed=\"16.0 GT/s\" link_width=\"16\">"
        "<gpu sm=\"80\">{}</gpu></pci>",
        bus(gpu), links[static_cast<std::size_t>(gpu)]);
  const Result<Topology> made = read_topology(fmt::format(
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"1\"><pci busid=\"0000:01:00.0\" "
      "class=\"0x060400\" link_speed=\"16.0 GT/s\" link_width=\"16\">{}</pci></cpu></system>",
      inside));
  INFO(made.status().message());
  REQUIRE(made.ok());
  return *made;
}

Cluster two_kinds(const std::string& first, const std::string& second, int hosts) {
  Cluster cluster = equal_hosts(tests::described_machine(first), hosts / 2,
                                usual_members(tests::described_machine(first)));
  cluster.machines.push_back(tests::described_machine(second));
  int rank = cluster.rank_count();
  for (int i = hosts / 2; i < hosts; ++i) {
    ClusterHost& host = cluster.hosts.emplace_back();
    host.machine = 1;
    for (const int node : usual_members(cluster.machines[1]))
      host.members.push_back({rank++, node});
  }
  return cluster;
}

}  // namespace

TEST_CASE("in meshes of NVLinks rings and chains come near the best that there are", "[topology]") {
  std::mt19937_64 random(tests::rng_seed());
  double least = 1, sum = 0;
  int count = 0;
  for (int draw = 0; draw < 24; ++draw) {
    const int gpus = 2 + static_cast<int>(random() % 5);
    const Topology mesh = random_mesh(random, gpus);
    const Cluster cluster = equal_hosts(mesh, 1, usual_members(mesh));
    for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
      CAPTURE(tests::rng_seed(), draw, gpus, pattern_name(pattern), write_nccl_xml(mesh));
      const FoundChannels found = find(cluster, pattern);
      INFO(reason_text(found));
      CHECK(tests::fault_of(cluster, found) == "");
      const double best = tests::best_gigabytes_per_s(cluster, pattern);
      CHECK(best <= found.bound_gigabytes_per_s * 1.001);
      CHECK(found.gigabytes_per_s >= 0.85 * best);
      least = std::min(least, found.gigabytes_per_s / best);
      sum += found.gigabytes_per_s / best;
      ++count;
    }
  }
  INFO("least " << least);
  CHECK(sum / count > 0.97);
}

TEST_CASE("a tour is the cheapest, or nearly where there are too many", "[topology]") {
  std::mt19937_64 random(tests::rng_seed());
  for (int count = 1; count <= 8; ++count) {
    ArcCosts costs(count);
    for (int from = 0; from < count; ++from)
      for (int to = 0; to < count; ++to)
        costs.at(from, to) = static_cast<std::int64_t>(random() % 100);
    std::vector<int> tour(static_cast<std::size_t>(count));
    std::iota(tour.begin(), tour.end(), 0);
    std::int64_t steps = 1'000'000, least = INT64_MAX;
    const std::vector<int> found = cheapest_tour(costs, tour, steps);
    do least = std::min(least, costs.of_tour(tour));
    while (std::next_permutation(tour.begin() + 1, tour.end()));
    CAPTURE(tests::rng_seed(), count);
    CHECK(found.front() == 0);
    CHECK(costs.of_tour(found) == least);
  }
  // Forty places on a circle, numbered at random: the way round is the cheapest.
  constexpr int many = 40;
  std::vector<int> places(many);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin() + 1, places.end(), random);
  ArcCosts costs(many);
  for (int from = 0; from < many; ++from)
    for (int to = 0; to < many; ++to) {
      const int apart =
          std::abs(places[static_cast<std::size_t>(from)] - places[static_cast<std::size_t>(to)]);
      costs.at(from, to) = std::min(apart, many - apart);
    }
  std::vector<int> start(many);
  std::iota(start.begin(), start.end(), 0);
  std::int64_t steps = 1'000'000;
  CHECK(costs.of_tour(cheapest_tour(costs, start, steps)) == many);
}

TEST_CASE("hosts may differ in GPUs, in ports, and in ranks", "[topology]") {
  check_found(two_kinds("hgx_h100", "dgx_a100", 2), 0.95);
  check_found(two_kinds("hgx_h100", "broken_nic", 4), 0.95);
  check_found(two_kinds("hgx_h100", "cloud_32_nics", 4), 0.95);
  check_found(two_kinds("pcie_8", "workstation_2", 4), 0.95);
  check_found(two_kinds("epyc_9654", "xeon_8480_snc4", 4), 0.95);
  const Topology machine = tests::described_machine("hgx_h100");
  const std::vector<int> gpus = usual_members(machine);
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const int hosts : {1, 2, 3, 5}) {
      CAPTURE(ranks, hosts);
      check_found(equal_hosts(machine, hosts, {gpus.begin(), gpus.begin() + ranks}), 0.75);
    }
  Cluster uneven = equal_hosts(machine, 3, gpus);
  uneven.hosts[1].members.resize(3);
  for (int i = 0; i < 8; ++i) uneven.hosts[2].members[static_cast<std::size_t>(i)].rank = 11 + i;
  check_found(uneven, 0.5);
}

TEST_CASE("rings stay on a rail between hosts, and all rails carry as much", "[topology]") {
  for (const int hosts : {2, 3, 4, 7}) {
    const Topology machine = tests::described_machine("hgx_h100");
    const Cluster cluster = equal_hosts(machine, hosts, usual_members(machine));
    const FoundChannels found = find(cluster, ChannelPattern::ring);
    CAPTURE(hosts);
    std::map<int, int> uses;
    for (const FoundChannel& channel : found.channels) {
      CHECK(channel.crossings.size() == static_cast<std::size_t>(hosts));
      for (const HostCrossing& one : channel.crossings) {
        CHECK(one.from_port == one.to_port);
        ++uses[one.from_port];
      }
    }
    CHECK(uses.size() == 8);
    for (const auto& [port, count] : uses) CHECK(count == hosts);
  }
}

TEST_CASE("ports that are down, virtual or slow are no rails", "[topology]") {
  Topology machine = tests::described_machine("hgx_h100");
  const std::vector<int> ports = machine.all(NodeKind::port);
  const auto port = [&](int index) -> TopologyNode& {
    return machine.nodes[static_cast<std::size_t>(ports[static_cast<std::size_t>(index)])];
  };
  port(0).port->is_up = false;
  port(1).port->is_virtual = true;
  port(2).port->is_loopback = true;
  port(3).gigabytes_per_s = 1.25;
  CHECK(usable_ports(machine) == std::vector<int>(ports.begin() + 4, ports.end()));
  const Cluster cluster = equal_hosts(machine, 2, usual_members(machine));
  const FoundChannels found = find(cluster, ChannelPattern::ring);
  CHECK(found.gigabytes_per_s == Approx(200));
  for (int i = 3; i < 8; ++i) port(i).port->is_up = false;
  CHECK_THAT(refusal(equal_hosts(machine, 2, usual_members(machine))),
             tests::has_text("host hgx_h100 has no port that is up"));
}

TEST_CASE("ranks on processors go round caches, then NUMA nodes, then packages", "[topology]") {
  const Topology machine = tests::described_machine("epyc_9654_nps4");
  std::vector<int> cores = machine.all(NodeKind::core);
  std::mt19937_64 random(tests::rng_seed());
  std::shuffle(cores.begin(), cores.end(), random);
  cores.resize(60);
  const FoundChannels found = find(equal_hosts(machine, 1, cores), ChannelPattern::ring);
  const auto changes = [&](NodeKind kind) {
    std::set<int> seen;
    int count = 0;
    for (std::size_t i = 0; i < found.channels[0].order.size(); ++i) {
      const auto at = [&](std::size_t place) {
        const int rank = found.channels[0].order[place % found.channels[0].order.size()];
        return machine.above(cores[static_cast<std::size_t>(rank)], kind);
      };
      seen.insert(at(i));
      count += at(i) != at(i + 1) ? 1 : 0;
    }
    return std::pair(count, static_cast<int>(seen.size()));
  };
  for (const NodeKind kind : {NodeKind::cache, NodeKind::numa_node, NodeKind::package}) {
    const auto [count, parts] = changes(kind);
    CAPTURE(tests::rng_seed(), kind_name(kind));
    CHECK(count == parts);
  }
}

TEST_CASE("all ranks find the same, whichever numbers they have", "[topology]") {
  const Topology machine = tests::described_machine("dgx_a100");
  Cluster cluster = equal_hosts(machine, 2, usual_members(machine));
  for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
    const FoundChannels found = find(cluster, pattern);
    CHECK(find(cluster, pattern) == found);
    Cluster renamed = cluster;
    for (ClusterHost& host : renamed.hosts)
      for (ClusterMember& member : host.members) member.rank = 15 - member.rank;
    const FoundChannels other = find(renamed, pattern);
    CHECK(other.gigabytes_per_s == found.gigabytes_per_s);
    REQUIRE(other.channels.size() == found.channels.size());
    for (std::size_t i = 0; i < found.channels.size(); ++i)
      for (std::size_t place = 0; place < 16; ++place)
        CHECK(other.channels[i].order[place] == 15 - found.channels[i].order[place]);
  }
}

TEST_CASE("without steps the orders are those of the machine's parts", "[topology]") {
  for (const std::string& name : tests::machine_names()) {
    CAPTURE(name);
    const Topology machine = tests::described_machine(name);
    for (const int hosts : {1, 3})
      for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
        const Cluster cluster = equal_hosts(machine, hosts, usual_members(machine));
        const FoundChannels found = find(cluster, pattern, {.max_steps = 0});
        CHECK(tests::fault_of(cluster, found) == "");
        if (pattern == ChannelPattern::ring) CHECK(std::ranges::is_sorted(found.channels[0].order));
      }
  }
}

TEST_CASE("a search over the largest host takes few more steps than it may", "[topology]") {
  ProcessorSet processors;
  for (int i = 0; i < max_members; ++i) processors.insert(i);
  Topology machine = flat_topology("wide", processors);
  for (int i = 0; i < 1000; ++i) {
    TopologyNode port;
    port.kind = NodeKind::port;
    port.parent = 0;
    port.name = fmt::format("eth{}", i);
    port.port.emplace();
    machine.add(port);
  }
  const SearchLimits limits{.max_steps = 500'000, .max_channels = 4};
  for (const int hosts : {1, 2})
    for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
      const Cluster cluster = equal_hosts(machine, hosts, usual_members(machine));
      const FoundChannels found = find(cluster, pattern, limits);
      // What was begun is ended: a look at all arcs for each channel.
      CHECK(found.steps <= limits.max_steps + 16 * max_members * max_members);
      CHECK(tests::fault_of(cluster, found) == "");
    }
}

namespace {

// Hosts that all differ; the narrowest is the last.
Cluster all_different() {
  Cluster cluster = two_kinds("hgx_h100", "pcie_8", 2);
  const std::vector<ClusterMember> first = cluster.hosts[0].members;
  for (std::size_t members = 7; members > 2; --members) {
    ClusterHost host{0, {first.begin(), first.begin() + static_cast<std::ptrdiff_t>(members)}};
    cluster.hosts.insert(cluster.hosts.end() - 1, host);
  }
  int rank = 0;
  for (ClusterHost& host : cluster.hosts)
    for (ClusterMember& member : host.members) member.rank = rank++;
  return cluster;
}

// The fewest steps, of powers of two, with which max-flow finds the bound. No orders are searched.
std::int64_t flow_steps_for(const Cluster& cluster) {
  SearchLimits limits{.max_steps = 0};
  const double bound = find(cluster, ChannelPattern::ring, limits).bound_gigabytes_per_s;
  for (std::int64_t steps = 1;; steps *= 2) {
    limits.max_flow_steps = steps;
    const FoundChannels found = find(cluster, ChannelPattern::ring, limits);
    CHECK(tests::fault_of(cluster, found) == "");
    CHECK(found.bound_gigabytes_per_s >= bound);
    if (found.bound_gigabytes_per_s == bound) return steps;
  }
}

}  // namespace

TEST_CASE("all hosts of a search together have a limit of steps for their bounds", "[topology]") {
  const Cluster cluster = all_different();
  Cluster narrow = cluster;
  narrow.hosts.erase(narrow.hosts.begin(), narrow.hosts.end() - 1);
  for (std::size_t i = 0; i < narrow.hosts[0].members.size(); ++i)
    narrow.hosts[0].members[i].rank = static_cast<int>(i);
  narrow.hosts.push_back(narrow.hosts[0]);
  for (ClusterMember& member : narrow.hosts[1].members)
    member.rank += static_cast<int>(narrow.hosts[0].members.size());
  CHECK(flow_steps_for(cluster) > 2 * flow_steps_for(narrow));
  // Equal hosts are judged once.
  Cluster more = narrow;
  more.hosts.push_back(narrow.hosts[0]);
  for (ClusterMember& member : more.hosts[2].members) member.rank += narrow.rank_count();
  CHECK(flow_steps_for(more) == flow_steps_for(narrow));
}

TEST_CASE("all hosts of a search together have room for so many edges of routes", "[topology]") {
  const Cluster cluster = all_different();
  Cluster one = cluster;
  one.hosts.resize(1);
  const auto has_room = [](const Cluster& over, std::size_t edges) {
    const auto found = find_rings(over, {.max_route_edges = edges});
    if (!found.ok())
      CHECK_THAT(std::string(found.status().message()), tests::has_text("edges that a search"));
    return found.ok();
  };
  std::size_t edges = 1;
  while (!has_room(one, edges)) edges *= 2;
  CHECK_FALSE(has_room(cluster, edges));
  CHECK(has_room(cluster, 16 * edges));
}

TEST_CASE("several ranks may be on one GPU or core", "[topology]") {
  const Topology machine = tests::described_machine("workstation_2");
  const std::vector<int> gpus = usual_members(machine);
  check_found(equal_hosts(machine, 1, {gpus[0], gpus[1], gpus[0], gpus[1], gpus[0]}), 0.95);
  check_found(equal_hosts(machine, 2, {gpus[0], gpus[0], gpus[0]}), 0.95);
  check_found(equal_hosts(machine, 1, {0, 0}), 0.95);
  // Where no edge is a limit, there is one channel.
  for (const std::vector<int>& nodes : {std::vector<int>{gpus[0]}, {gpus[1], gpus[1]}})
    for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree}) {
      const FoundChannels found = find(equal_hosts(machine, 1, nodes), pattern);
      CHECK(found.channels.size() == 1);
      CHECK(found.gigabytes_per_s == found.bound_gigabytes_per_s);
    }
}

TEST_CASE("clusters that cannot be are refused", "[topology]") {
  const Topology machine = tests::described_machine("workstation_2");
  const std::vector<int> gpus = usual_members(machine);
  struct Case {
    Cluster cluster;
    const char* reason;
  };
  Cluster twice = equal_hosts(machine, 1, gpus), beyond = twice, elsewhere = twice, port = twice;
  twice.hosts[0].members[1].rank = 0;
  beyond.hosts[0].members[1].rank = 2;
  elsewhere.hosts[0].machine = 1;
  port.hosts[0].members[0].node = machine.all(NodeKind::port).front();
  Cluster missing = equal_hosts(machine, 1, {gpus[0], 1000});
  Cluster crowded = equal_hosts(machine, 1, std::vector<int>(max_members + 1, gpus[0]));
  for (const auto& [cluster, reason] :
       {Case{{}, "a cluster of 0 ranks"}, Case{twice, "rank 0 is there twice"},
        Case{beyond, "rank 2 of a cluster of 2 ranks"},
        Case{elsewhere, "a host of machine 1, of 1 machines"},
        Case{port, "rank 0 is on port mlx5_0, which computes nothing"},
        Case{missing, "rank 1 is on node 1000"}, Case{crowded, "a host with 513 ranks"}})
    CHECK_THAT(refusal(cluster), tests::has_text(reason));
}

TEST_CASE("fewer rings than rails carry less, and the search does not look for more",
          "[topology]") {
  const Topology machine = tests::described_machine("cloud_32_nics");
  const Cluster cluster = equal_hosts(machine, 2, usual_members(machine));
  const auto found = find_rings(cluster, {.max_channels = 16});
  REQUIRE(found.ok());
  CHECK(found->channels.size() == 16);
  CHECK(found->gigabytes_per_s == Approx(200));
  CHECK(found->bound_gigabytes_per_s == Approx(200));
  CHECK(found->bound_reason == "at most 16 rings, each on one rail");
  CHECK(found->steps < 2'000'000);
}

TEST_CASE("a ring more than there are rails does not halve what all carry", "[topology]") {
  Topology machine = tests::described_machine("hgx_b200");
  for (TopologyNode& node : machine.nodes) node.gigabytes_per_s *= 2;
  const Cluster cluster = equal_hosts(machine, 2, usual_members(machine));
  for (int most = 8; most <= 16; ++most) {
    const FoundChannels found = find(cluster, ChannelPattern::ring, {.max_channels = most});
    CAPTURE(most, reason_text(found));
    CHECK(found.gigabytes_per_s >= 720);  // of eight channels of 90, on eight rails of 100
    CHECK(found.bound_gigabytes_per_s >= 720);
  }
}

}  // namespace search_test
