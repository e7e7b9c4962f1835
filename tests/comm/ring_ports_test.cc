// The ports that links between hosts take by the rings of a search: both ends of a link agree, and
// each ring crosses by its own.
#include "lib/comm/ring_searches.h"
#include "tests/support/catch.h"
#include "tests/topologies/described_machines.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ring_ports_test {

using namespace gyre;
using namespace gyre::comm;
using namespace gyre::topology;

namespace {

FoundChannels rings_over(const Cluster& cluster) {
  const auto found = find_rings(cluster, {.max_channels = max_gpu_channels});
  INFO(found.status().message());
  REQUIRE(found.ok());
  return *found;
}

Cluster on_gpus(const std::string& name, int hosts, std::size_t gpus = 512) {
  const Topology machine = tests::described_machine(name);
  std::vector<int> nodes = machine.all(NodeKind::gpu);
  nodes.resize(std::min(nodes.size(), gpus));
  return equal_hosts(machine, hosts, nodes);
}

// By rank and peer.
std::vector<PortsByPeer> all_ports(const Cluster& cluster, const FoundChannels& found) {
  std::vector<PortsByPeer> ports;
  for (int rank = 0; rank < cluster.rank_count(); ++rank)
    ports.push_back(ring_ports(cluster, found, rank));
  return ports;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("both ends of a link plan for the same rings, and each ring has its ports there") {
  for (const char* const name : {"hgx_h100", "dgx1_v100", "pcie_8", "cloud_32_nics"})
    for (const int hosts : {2, 3, 4}) {
      for (const std::size_t gpus : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
        CAPTURE(name, hosts, gpus);
        const Cluster cluster = on_gpus(name, hosts, gpus);
        const FoundChannels found = rings_over(cluster);
        const std::vector<PortsByPeer> ports = all_ports(cluster, found);
        const int each = static_cast<int>(cluster.hosts[0].members.size());
        for (int rank = 0; rank < cluster.rank_count(); ++rank)
          for (const auto& [peer, planned] : ports[static_cast<std::size_t>(rank)]) {
            CHECK(peer / each != rank / each);
            const PlannedPorts& back = ports[static_cast<std::size_t>(peer)].at(rank);
            CHECK(planned.out.size() == back.in.size());
            CHECK(planned.in.size() == back.out.size());
            CHECK_FALSE(planned.out.empty());
            CHECK_FALSE(planned.in.empty());
          }
        for (const FoundChannel& ring : found.channels)
          for (std::size_t i = 0; i < ring.order.size(); ++i) {
            const int from = ring.order[i], to = ring.order[(i + 1) % ring.order.size()];
            if (from / each == to / each) continue;
            const auto& crossing =
                *std::ranges::find(ring.crossings, from / each, &HostCrossing::from_host);
            const Names& out = ports[static_cast<std::size_t>(from)].at(to).out;
            const Names& in = ports[static_cast<std::size_t>(to)].at(from).in;
            bool is_there = false;
            for (std::size_t k = 0; k < out.size(); ++k)
              is_there |= out[k] == port_name(cluster.machines[0].node(crossing.from_port)) &&
                          in[k] == port_name(cluster.machines[0].node(crossing.to_port));
            CHECK(is_there);
          }
      }
    }
}

TEST_CASE("with a NIC for each GPU every link between hosts has one port of its own") {
  const Cluster cluster = on_gpus("hgx_h100", 2);
  const FoundChannels found = rings_over(cluster);
  for (int host = 0; host < 2; ++host) {
    std::set<std::string> used;
    for (int rank = 8 * host; rank < 8 * host + 8; ++rank)
      for (const auto& [peer, planned] : ring_ports(cluster, found, rank)) {
        CHECK(planned.out.size() == 1);
        CHECK(planned.in == planned.out);
        CHECK(planned.out.front().ends_with(":1"));
        used.insert(planned.out.front());
      }
    CHECK(used.size() == 8);
  }
}

TEST_CASE("a ring's way back takes the ring's ports where no ring goes") {
  const Cluster cluster = on_gpus("hgx_h100", 3);
  const FoundChannels found = rings_over(cluster);
  std::set<std::pair<int, int>> crossed;
  for (const FoundChannel& ring : found.channels)
    for (std::size_t i = 0; i < ring.order.size(); ++i)
      crossed.insert({ring.order[i], ring.order[(i + 1) % ring.order.size()]});
  int one_way = 0;
  for (int rank = 0; rank < cluster.rank_count(); ++rank)
    for (const auto& [peer, planned] : ring_ports(cluster, found, rank)) {
      if (crossed.contains({peer, rank})) continue;
      ++one_way;
      CHECK(planned.in == planned.out);
    }
  CHECK(one_way > 0);
}

TEST_CASE("on one host there is nothing to plan") {
  const Cluster cluster = on_gpus("hgx_h100", 1);
  const FoundChannels found = rings_over(cluster);
  for (int rank = 0; rank < 8; ++rank) CHECK(ring_ports(cluster, found, rank).empty());
}

}  // namespace ring_ports_test
