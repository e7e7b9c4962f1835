#include "lib/topology/routes.h"

#include "lib/topology/speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gyre::topology {
namespace {

// Where each node comes in a walk through the tree.
std::vector<int> tree_places(const Topology& topology) {
  const std::vector<std::vector<int>> children = topology.children();
  std::vector<int> places(topology.nodes.size()), next = {0};
  for (int place = 0; !next.empty(); ++place) {
    const int at = next.back();
    next.pop_back();
    places[static_cast<std::size_t>(at)] = place;
    const auto& inside = children[static_cast<std::size_t>(at)];
    next.insert(next.end(), inside.rbegin(), inside.rend());
  }
  return places;
}

bool connects_hosts(const TopologyNode& node) {
  return node.kind == NodeKind::port && node.port && node.port->is_up && !node.port->is_loopback &&
         !node.port->is_virtual;
}

}  // namespace

std::int64_t whole_megabytes(double gigabytes_per_s) {
  constexpr double most = 1e6;  // 10^9 bytes per second: beyond any machine
  return std::max<std::int64_t>(1, std::llround(std::min(gigabytes_per_s, most) * 1000));
}

std::vector<int> usable_ports(const Topology& topology) {
  std::vector<int> ports = topology.all(NodeKind::port);
  std::erase_if(ports, [&](int port) { return !connects_hosts(topology.node(port)); });
  // An interface of the kernel beside a verbs device is the same wire.
  const auto has_better = [&](int port) {
    const TopologyNode& node = topology.node(port);
    return !node.port->has_verbs && std::ranges::any_of(ports, [&](int other) {
      return topology.node(other).parent == node.parent && topology.node(other).port->has_verbs;
    });
  };
  std::vector<int> found;
  double fastest = 0;
  for (const int port : ports) {
    if (has_better(port)) continue;
    found.push_back(port);
    fastest = std::max(fastest, port_speed(topology.node(port)).gigabytes_per_s);
  }
  std::erase_if(found, [&](int port) {
    return port_speed(topology.node(port)).gigabytes_per_s < fastest / 4;
  });
  const std::vector<int> places = tree_places(topology);
  std::ranges::stable_sort(found, {},
                           [&](int port) { return places[static_cast<std::size_t>(port)]; });
  if (found.size() > max_rails) found.resize(max_rails);
  return found;
}

class RouteFinder {
 public:
  RouteFinder(const Topology& topology, std::span<const int> members, std::size_t room)
      : topology_(topology), table_(topology), room_(room), number_of_(table_.edges().size(), -1) {
    const std::vector<int> places = tree_places(topology);
    routes_.given_.resize(members.size());
    std::iota(routes_.given_.begin(), routes_.given_.end(), 0);
    std::ranges::stable_sort(routes_.given_, {}, [&](int given) {
      return places[static_cast<std::size_t>(members[static_cast<std::size_t>(given)])];
    });
    for (const int given : routes_.given_)
      routes_.nodes_.push_back(members[static_cast<std::size_t>(given)]);
  }

  Result<HostRoutes> find() {
    for (const int from : routes_.nodes_)
      for (const DevicePath& path : table_.paths_from(from, routes_.nodes_)) {
        if (path.kind == PathClass::none) return no_path(from);
        routes_.between_.push_back(numbered(path.edges));
        if (length_ > room_) return too_long();
      }
    for (const int port : usable_ports(topology_)) {
      add_rail(port);
      if (length_ > room_) return too_long();
    }
    for (std::size_t member = 0; member < routes_.nodes_.size(); ++member)
      for (std::size_t rail = 0; rail < routes_.ports_.size(); ++rail) {
        routes_.leaving_.push_back(std::move(leaving_[rail][member]));
        routes_.entering_.push_back(std::move(entering_[rail][member]));
      }
    return std::move(routes_);
  }
  std::size_t length() const { return length_; }

 private:
  using EdgeList = std::vector<int>;

  Status too_long() const {
    return invalid_argument(
        fmt::format("the paths between {} members of {} have more than the {} edges that a search "
                    "has room for",
                    routes_.nodes_.size(), node_text(topology_.node(0)), room_));
  }

  Status no_path(int from) const {
    return invalid_argument(fmt::format("no path leads from {} to every other member",
                                        node_text(topology_.node(from))));
  }

  // The edges of a path by their numbers in `routes_`, which they get when they are first met.
  EdgeList numbered(const EdgeList& path) {
    EdgeList found;
    found.reserve(path.size() + 1);
    for (const int edge : path) {
      int& number = number_of_[static_cast<std::size_t>(edge)];
      const EdgeTable::Edge& known = table_.edges()[static_cast<std::size_t>(edge)];
      if (number < 0) number = add_edge(known.from, known.to, known.gigabytes_per_s);
      found.push_back(number);
    }
    length_ += path.size();
    return found;
  }

  int add_edge(int from, int to, double gigabytes_per_s) {
    routes_.edges_.push_back({from, to, whole_megabytes(gigabytes_per_s)});
    return static_cast<int>(routes_.edges_.size()) - 1;
  }

  // Directly where the NIC reaches the memory of the GPU, else by the memory of the processors.
  bool is_direct(int member, int port) const {
    const TopologyNode& device = topology_.node(member);
    return device.kind != NodeKind::gpu ||
           (device.gpu && device.gpu->nic_reaches && topology_.node(port).port->nic_reaches_gpus);
  }

  // A port that some member does not reach is no rail.
  void add_rail(int port) {
    const std::vector<DevicePath> direct = table_.paths_from(port, routes_.nodes_);
    const int numa = topology_.above(port, NodeKind::numa_node);
    EdgeList to_numa;
    std::vector<DevicePath> from_numa;
    if (numa >= 0) {
      to_numa = table_.path_between(port, numa).edges;
      from_numa = table_.paths_from(numa, routes_.nodes_);
    }
    if (std::ranges::any_of(direct, [](const auto& one) { return one.kind == PathClass::none; }))
      return;
    const double speed = port_speed(topology_.node(port)).gigabytes_per_s;
    const int wire_out = add_edge(port, network_node, speed);
    const int wire_in = add_edge(network_node, port, speed);
    std::vector<EdgeList>& leaving = leaving_.emplace_back();
    std::vector<EdgeList>& entering = entering_.emplace_back();
    for (std::size_t member = 0; member < direct.size(); ++member) {
      EdgeList path = direct[member].edges;
      if (numa >= 0 && !is_direct(routes_.nodes_[member], port)) {
        path = to_numa;
        append(path, from_numa[member].edges);
      }
      leaving.push_back(numbered(EdgeTable::backwards(path)));
      leaving.back().push_back(wire_out);
      entering.push_back({wire_in});
      append(entering.back(), numbered(path));
    }
    routes_.ports_.push_back(port);
  }

  static void append(EdgeList& to, const EdgeList& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  const Topology& topology_;
  const EdgeTable table_;
  const std::size_t room_;
  std::vector<int> number_of_;  // by edge of the table; -1: no route takes it yet
  std::size_t length_ = 0;      // edges of all routes together
  HostRoutes routes_;
  std::vector<std::vector<EdgeList>> leaving_, entering_;  // by rail, by member
};

Result<HostRoutes> HostRoutes::find(const Topology& topology, std::span<const int> members,
                                    std::size_t& room) {
  RouteFinder finder(topology, members, room);
  GYRE_ASSIGN(HostRoutes found, finder.find());
  room -= std::min(room, finder.length());
  return found;
}

bool HostRoutes::is_near(int member, int rail) const {
  for (int other = 0; other < member_count(); ++other)
    if (leaving(other, rail).size() < leaving(member, rail).size()) return false;
  return true;
}

std::int64_t HostRoutes::rail_megabytes_per_s(int rail) const {
  std::int64_t best = 0;
  for (int member = 0; member < member_count(); ++member) {
    std::int64_t narrowest = INT64_MAX;
    for (const auto* path : {&leaving(member, rail), &entering(member, rail)})
      for (const int edge : *path)
        narrowest = std::min(narrowest, edges_[static_cast<std::size_t>(edge)].megabytes_per_s);
    best = std::max(best, narrowest);
  }
  return best;
}

}  // namespace gyre::topology
