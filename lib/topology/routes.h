// Routes: the edges that bytes take between the members of a search on one host, and between them
// and the network. All figures are whole numbers, so that every rank calculates the same.
//
//   member   a GPU or a place of processors that a rank uses. Members are numbered along the
//            tree of the host's parts, so that near ones have near numbers.
//   rail     a port that a search may use, by its number. Equal hosts number their ports alike, so
//            port i of one host and port i of another are on one rail of the network.
#pragma once

#include "lib/topology/paths.h"

#include <cstdint>
#include <span>
#include <vector>

namespace gyre::topology {

// The node of whatever lies beyond a port.
inline constexpr int network_node = -1;

std::int64_t whole_megabytes(double gigabytes_per_s);

struct RouteEdge {
  int from = 0, to = 0;  // nodes, or network_node
  std::int64_t megabytes_per_s = 0;
};

class HostRoutes {
 public:
  // `members`: nodes. An error if one of them reaches no other, or if the routes have more edges
  // than `room`, which gets less.
  static Result<HostRoutes> find(const Topology& topology, std::span<const int> members,
                                 std::size_t& room);

  int member_count() const { return static_cast<int>(nodes_.size()); }
  int rail_count() const { return static_cast<int>(ports_.size()); }
  int node(int member) const { return nodes_[static_cast<std::size_t>(member)]; }
  int port(int rail) const { return ports_[static_cast<std::size_t>(rail)]; }
  // Which of the nodes that `find` was given it is.
  int given(int member) const { return given_[static_cast<std::size_t>(member)]; }
  // Only edges that some route takes.
  const std::vector<RouteEdge>& edges() const { return edges_; }

  const std::vector<int>& between(int from, int to) const {
    return between_[place(from, to, member_count())];
  }
  // Out by a rail, the port's wire included, and in by it.
  const std::vector<int>& leaving(int member, int rail) const {
    return leaving_[place(member, rail, rail_count())];
  }
  const std::vector<int>& entering(int member, int rail) const {
    return entering_[place(member, rail, rail_count())];
  }
  // Whether no member has a shorter path to the rail.
  bool is_near(int member, int rail) const;
  // Of the member that reaches the rail best.
  std::int64_t rail_megabytes_per_s(int rail) const;

 private:
  friend class RouteFinder;
  static std::size_t place(int row, int column, int columns) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
           static_cast<std::size_t>(column);
  }

  std::vector<int> nodes_, given_, ports_;
  std::vector<RouteEdge> edges_;
  std::vector<std::vector<int>> between_, leaving_, entering_;
};

// Ports that connect hosts: up, not loopback and not virtual. Of a NIC with verbs, those with
// verbs; none that is slower than a quarter of the fastest. At most `max_rails`.
inline constexpr std::size_t max_rails = 128;
std::vector<int> usable_ports(const Topology& topology);

}  // namespace gyre::topology
