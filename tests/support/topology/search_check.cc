#include "tests/support/topology/search_check.h"

#include "lib/topology/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace gyre::tests {
namespace {

using namespace topology;

// A directed edge of one host, by its nodes: parallel edges (PCIe and C2C) count together.
using HostEdge = std::tuple<int, int, int>;  // host, from, to; -1: the network

class Accountant {
 public:
  explicit Accountant(const Cluster& cluster) : cluster_(cluster) {
    for (const Topology& machine : cluster.machines) tables_.emplace_back(machine);
    for (std::size_t host = 0; host < cluster.hosts.size(); ++host)
      for (const ClusterMember& member : cluster.hosts[host].members)
        places_[member.rank] = {static_cast<int>(host), member.node};
  }

  int host_of(int rank) const { return places_.at(rank).first; }
  const Topology& machine(int host) const {
    return cluster_.topology(cluster_.hosts[static_cast<std::size_t>(host)]);
  }

  // `crossings` of the channel: which ports lie between two hosts.
  void add(int from, int to, const std::vector<HostCrossing>& crossings, double rate) {
    const auto& [from_host, from_node] = places_.at(from);
    const auto& [to_host, to_node] = places_.at(to);
    if (from_host == to_host) {
      add_path(from_host, from_node, to_node, rate);
      return;
    }
    // A tree's data also goes against its crossings.
    for (const bool ahead : {true, false})
      for (const HostCrossing& one : crossings) {
        if ((ahead ? one.from_host : one.to_host) != from_host) continue;
        if ((ahead ? one.to_host : one.from_host) != to_host) continue;
        const int out = ahead ? one.from_port : one.to_port;
        const int in = ahead ? one.to_port : one.from_port;
        add_path(from_host, from_node, out, rate);
        loads_[{from_host, out, -1}] += rate;
        loads_[{to_host, -1, in}] += rate;
        add_path(to_host, in, to_node, rate);
        return;
      }
    fault_ = fmt::format("no crossing leads from host {} to host {}", from_host, to_host);
  }

  // Loads that are more than a thousandth above what an edge carries.
  std::string fault() const {
    if (!fault_.empty()) return fault_;
    for (const auto& [edge, load] : loads_) {
      const auto& [host, from, to] = edge;
      if (const double most = capacity(host, from, to); load > most * 1.001)
        return fmt::format("host {}: {} GB/s on the edge of {} from node {} to {}", host, load,
                           most, from, to);
    }
    return {};
  }

  const std::map<HostEdge, double>& loads() const { return loads_; }
  double capacity(int host, int from, int to) const {
    if (from < 0 || to < 0) {
      const double wire = machine(host).node(std::max(from, to)).gigabytes_per_s;
      return wire > 0 ? wire : 1.25;
    }
    double sum = 0;
    for (const auto& edge : table(host).edges())
      if (edge.from == from && edge.to == to) sum += edge.gigabytes_per_s;
    return sum;
  }
  void forget() { loads_.clear(); }

 private:
  const EdgeTable& table(int host) const {
    return tables_[static_cast<std::size_t>(
        cluster_.hosts[static_cast<std::size_t>(host)].machine)];
  }

  void add_path(int host, int from, int to, double rate) {
    const auto [place, is_new] = paths_.try_emplace({host, from, to});
    if (is_new) place->second = table(host).paths_from(from)[static_cast<std::size_t>(to)].nodes;
    const std::vector<int>& nodes = place->second;
    for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
      loads_[{host, nodes[i], nodes[i + 1]}] += rate;
  }

  const Cluster& cluster_;
  std::vector<EdgeTable> tables_;
  std::map<int, std::pair<int, int>> places_;  // rank: host and node
  std::map<HostEdge, double> loads_;
  std::map<HostEdge, std::vector<int>> paths_;
  std::string fault_;
};

std::string ports_fault(const Accountant& accountant, const FoundChannel& channel) {
  for (const HostCrossing& one : channel.crossings)
    for (const auto& [host, port] :
         {std::pair(one.from_host, one.from_port), std::pair(one.to_host, one.to_port)}) {
      const TopologyNode& node = accountant.machine(host).node(port);
      if (node.kind != NodeKind::port || !node.port->is_up || node.port->is_loopback)
        return fmt::format("host {} crosses by {}", host, node_text(node));
    }
  return {};
}

// Each rank once; each host's ranks together.
std::string order_fault(const Accountant& accountant, const FoundChannel& channel, int ranks) {
  std::vector<int> sorted = channel.order;
  std::ranges::sort(sorted);
  for (int rank = 0; rank < ranks; ++rank)
    if (static_cast<int>(sorted.size()) != ranks || sorted[static_cast<std::size_t>(rank)] != rank)
      return "an order that does not name each rank once";
  std::set<int> left;
  int host = accountant.host_of(channel.order.front());
  for (const int rank : channel.order)
    if (const int now = accountant.host_of(rank); now != host) {
      left.insert(std::exchange(host, now));
      if (left.contains(now)) return fmt::format("an order that comes to host {} twice", now);
    }
  return {};
}

std::string tree_fault(const FoundChannel& channel) {
  std::set<int> above = {-1};
  for (const int rank : channel.order) {
    if (!above.contains(channel.parents[static_cast<std::size_t>(rank)]))
      return fmt::format("rank {} stands before its parent", rank);
    above.insert(rank);
  }
  return {};
}

void add_channel(Accountant& accountant, const FoundChannel& channel, double rate) {
  if (channel.parents.empty()) {
    for (std::size_t i = 0; i < channel.order.size(); ++i)
      accountant.add(channel.order[i], channel.order[(i + 1) % channel.order.size()],
                     channel.crossings, rate);
    return;
  }
  for (const int rank : channel.order) {
    const int parent = channel.parents[static_cast<std::size_t>(rank)];
    if (parent < 0) continue;
    accountant.add(rank, parent, channel.crossings, rate);
    accountant.add(parent, rank, channel.crossings, rate);
  }
}

// Maximises the sum of x with A x <= b and x >= 0, where b >= 0: the simplex method, by Bland's
// rule.
double greatest_sum(std::vector<std::vector<double>> columns, std::vector<double> b) {
  const std::size_t rows = b.size(), given = columns.size();
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<double> slack(rows);
    slack[row] = 1;
    columns.push_back(slack);
  }
  std::vector<double> gain(columns.size());
  std::fill_n(gain.begin(), given, 1.0);
  double sum = 0;
  for (int pivots = 0; pivots < 5000; ++pivots) {
    const auto best = std::ranges::find_if(gain, [](double one) { return one > 1e-9; });
    if (best == gain.end()) return sum;
    const std::vector<double> entering = columns[static_cast<std::size_t>(best - gain.begin())];
    std::size_t out = rows;
    for (std::size_t row = 0; row < rows; ++row)
      if (entering[row] > 1e-9 && (out == rows || b[row] / entering[row] < b[out] / entering[out]))
        out = row;
    if (out == rows) return sum;  // no limit
    const double amount = b[out] / entering[out];
    sum += amount * *best;
    const double factor = *best / entering[out];
    for (std::size_t i = 0; i < columns.size(); ++i) gain[i] -= factor * columns[i][out];
    for (std::vector<double>& column : columns) {
      const double pivot = column[out] / entering[out];
      for (std::size_t row = 0; row < rows; ++row) column[row] -= entering[row] * pivot;
      column[out] = pivot;
    }
    for (std::size_t row = 0; row < rows; ++row) b[row] -= entering[row] * amount;
    b[out] = amount;
  }
  return sum;
}

}  // namespace

std::string fault_of(const Cluster& cluster, const FoundChannels& found) {
  Accountant accountant(cluster);
  const bool is_tree = found.pattern == ChannelPattern::tree;
  if (found.channels.empty()) return "no channels";
  for (const FoundChannel& channel : found.channels) {
    if (channel.parents.empty() == is_tree) return "a channel of the other pattern";
    for (const std::string& fault :
         {ports_fault(accountant, channel), order_fault(accountant, channel, cluster.rank_count()),
          is_tree ? tree_fault(channel) : std::string()})
      if (!fault.empty()) return fault;
    add_channel(accountant, channel, found.channel_gigabytes_per_s);
  }
  return accountant.fault();
}

double best_gigabytes_per_s(const Cluster& cluster, ChannelPattern pattern) {
  const bool is_tree = pattern == ChannelPattern::tree;
  std::map<HostEdge, std::size_t> rows;
  std::set<std::map<HostEdge, double>> different;
  FoundChannel channel;
  channel.order.resize(static_cast<std::size_t>(cluster.rank_count()));
  std::iota(channel.order.begin(), channel.order.end(), 0);
  Accountant accountant(cluster);
  do {
    // A ring may begin anywhere, and a chain at either end.
    if (!is_tree && channel.order.front() != 0) break;
    if (is_tree) channel.parents.assign(channel.order.size(), -1);
    for (std::size_t i = 1; is_tree && i < channel.order.size(); ++i)
      channel.parents[static_cast<std::size_t>(channel.order[i])] = channel.order[i - 1];
    accountant.forget();
    add_channel(accountant, channel, 1);
    different.insert(accountant.loads());
  } while (std::next_permutation(channel.order.begin(), channel.order.end()));
  std::vector<double> capacities;
  std::vector<std::vector<double>> columns;
  for (const auto& loads : different)
    for (const auto& [edge, load] : loads)
      if (rows.emplace(edge, rows.size()).second)
        capacities.push_back(
            accountant.capacity(std::get<0>(edge), std::get<1>(edge), std::get<2>(edge)));
  for (const auto& loads : different) {
    std::vector<double>& column = columns.emplace_back(rows.size());
    for (const auto& [edge, load] : loads) column[rows.at(edge)] = load;
  }
  return greatest_sum(std::move(columns), std::move(capacities));
}

}  // namespace gyre::tests
