// Every described machine: its rings and trees are whole, within what each edge carries, as wide as
// the best that there are, proven as plans, and what the machine's file expects.
#include "tests/topologies/described_machines.h"

#include "lib/plan/verify.h"
#include "lib/topology/channels.h"
#include "lib/topology/hwloc_xml.h"
#include "lib/topology/paths.h"
#include "lib/topology/topology_file.h"
#include "tests/support/catch.h"
#include "tests/support/topology/search_check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace described_machines_test {

using namespace gyre;
using namespace gyre::topology;

namespace {

FoundChannels find(const Cluster& cluster, ChannelPattern pattern) {
  Result<FoundChannels> found =
      pattern == ChannelPattern::ring ? find_rings(cluster) : find_trees(cluster);
  INFO(found.status().message());
  REQUIRE(found.ok());
  return std::move(found).value();
}

// How often a channel goes from one package to another inside of hosts.
int package_crossings(const Cluster& cluster, const FoundChannel& channel) {
  std::map<int, std::pair<int, int>> places;  // rank: host and node
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host)
    for (const ClusterMember& member : cluster.hosts[host].members)
      places[member.rank] = {static_cast<int>(host), member.node};
  const EdgeTable table(cluster.machines.front());
  int count = 0;
  const std::size_t hops = channel.order.size() - (cluster.hosts.size() > 1 ? 1 : 0);
  for (std::size_t i = 0; i < hops; ++i) {
    const auto& [host, from] = places.at(channel.order[i]);
    const auto& [next_host, to] = places.at(channel.order[(i + 1) % channel.order.size()]);
    if (host != next_host) continue;
    const DevicePath path = table.path_between(from, to);
    count += path.kind == PathClass::interconnect ? 1 : 0;
  }
  return count;
}

// The class of the path between each rail and the rank beside it, the farthest of all.
std::string farthest_rail(const Cluster& cluster, const FoundChannels& found) {
  const EdgeTable table(cluster.machines.front());
  PathClass farthest = PathClass::same;
  for (const FoundChannel& channel : found.channels)
    for (const HostCrossing& crossing : channel.crossings) {
      const auto& members = cluster.hosts[static_cast<std::size_t>(crossing.to_host)].members;
      const auto is_here = [&](int rank) {
        return std::ranges::find(members, rank, &ClusterMember::rank) != members.end();
      };
      const auto head = std::ranges::find_if(channel.order, is_here);
      const int node = std::ranges::find(members, *head, &ClusterMember::rank)->node;
      const int port = crossing.to_port;
      farthest = std::max(farthest, table.path_between(port, node).kind);
    }
  return std::string(path_class_name(farthest));
}

nlohmann::ordered_json facts(const Cluster& cluster, const FoundChannels& found) {
  int crossings = 0;
  for (const FoundChannel& channel : found.channels)
    crossings = std::max(crossings, package_crossings(cluster, channel));
  const auto rounded = [](double value) { return std::round(value * 10) / 10; };
  nlohmann::ordered_json made = {{"channels", found.channels.size()},
                                 {"gigabytes_per_s", rounded(found.gigabytes_per_s)},
                                 {"bound", rounded(found.bound_gigabytes_per_s)},
                                 {"package_crossings_at_most", crossings}};
  if (cluster.hosts.size() > 1) made["farthest_rail"] = farthest_rail(cluster, found);
  return made;
}

std::string proof_fault(const FoundChannels& found, int ranks) {
  plan::PlanRequest request;
  request.rank_count = ranks;
  std::vector<plan::PlanRequest> requests;
  for (const FoundChannel& channel : found.channels) {
    const std::vector<std::int32_t> order(channel.order.begin(), channel.order.end());
    if (channel.parents.empty()) {
      request.order = order;
      if (requests.empty() || requests.back().order != order) requests.push_back(request);
      continue;
    }
    request.trees.emplace_back(channel.parents.begin(), channel.parents.end());
  }
  if (requests.empty()) requests.push_back(request);
  // Of large machines one plan: proofs of many ranks take long.
  if (ranks > 32) requests.resize(1);
  if (ranks > 32 && request.trees.size() > 2) requests.front().trees.resize(2);
  for (const plan::PlanRequest& one : requests) {
    const bool is_ring = one.trees.empty();
    const Status proof = plan::verify(*plan::find_algorithm(is_ring ? "ring" : "tree"), one);
    if (!proof.ok()) return std::string(proof.message());
  }
  return {};
}

struct Look {
  std::string machine;
  int hosts;
  ChannelPattern pattern;
};

std::vector<Look> looks() {
  std::vector<Look> all;
  for (const std::string& machine : tests::machine_names())
    for (const int hosts : {1, 2, 3, 4, 5})
      for (const ChannelPattern pattern : {ChannelPattern::ring, ChannelPattern::tree})
        all.push_back({machine, hosts, pattern});
  return all;
}

}  // namespace

TEST_CASE("rings and trees of described machines are whole, and as wide as they can be",
          "[topology]") {
  for (const Look& look : looks()) {
    CAPTURE(look.machine, look.hosts, pattern_name(look.pattern));
    const Topology machine = tests::described_machine(look.machine);
    const Cluster cluster = equal_hosts(machine, look.hosts, usual_members(machine));
    const FoundChannels found = find(cluster, look.pattern);
    INFO(reason_text(found));
    CHECK(tests::fault_of(cluster, found) == "");
    CHECK(found.gigabytes_per_s <= found.bound_gigabytes_per_s * 1.0001);
    if (look.hosts > 1 || cluster.rank_count() > 8) {
      CHECK(found.gigabytes_per_s >= found.bound_gigabytes_per_s * 0.95);
      continue;
    }
    const double best = tests::best_gigabytes_per_s(cluster, look.pattern);
    CHECK(found.gigabytes_per_s >= best * 0.95);
    CHECK(best <= found.bound_gigabytes_per_s * 1.001);
  }
}

TEST_CASE("searches find on described machines what their files expect", "[topology]") {
  for (const std::string& name : tests::machine_names()) {
    const Topology machine = tests::described_machine(name);
    nlohmann::ordered_json now;
    for (const int hosts : {1, 2, 4}) {
      const Cluster cluster = equal_hosts(machine, hosts, usual_members(machine));
      const std::string key = fmt::format("{} host{}", hosts, hosts == 1 ? "" : "s");
      now[key]["rings"] = facts(cluster, find(cluster, ChannelPattern::ring));
      now[key]["trees"] = facts(cluster, find(cluster, ChannelPattern::tree));
    }
    INFO(name << " has now:\n" << now.dump(2));
    auto expected = nlohmann::ordered_json::parse(tests::expectation_text(name));
    expected.erase("transports");  // candidates_test looks at them
    CHECK(expected == now);
  }
}

TEST_CASE("plans along the found orders are proven", "[topology]") {
  for (const Look& look : looks()) {
    const Topology machine = tests::described_machine(look.machine);
    const Cluster cluster = equal_hosts(machine, look.hosts, usual_members(machine));
    if (cluster.rank_count() > 72) continue;
    CAPTURE(look.machine, look.hosts, pattern_name(look.pattern));
    CHECK(proof_fault(find(cluster, look.pattern), cluster.rank_count()) == "");
  }
}

TEST_CASE("described machines come back from hwloc's format", "[topology]") {
  for (const std::string& name : tests::machine_names()) {
    CAPTURE(name);
    const Topology machine = tests::described_machine(name);
    const Result<Topology> again = read_topology(write_hwloc_xml(machine));
    INFO(again.status().message());
    REQUIRE(again.ok());
    CHECK(*again == machine);
  }
}

}  // namespace described_machines_test
