// Trees: the search for them over a cluster. Its double binary trees are lib/plan's.
#include "lib/plan/tree_shape.h"
#include "lib/topology/cluster_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace gyre::topology {
namespace {

// One tree between hosts.
struct HostTree {
  std::vector<int> parents;     // by host; -1: the root
  std::vector<int> neighbours;  // by host: how many
  std::vector<int> order;       // hosts, each after its parent
};

// `hosts`: which host has each seat.
HostTree tree_over(const std::vector<int>& hosts) {
  const auto count = static_cast<std::int32_t>(hosts.size());
  HostTree tree;
  tree.parents.assign(hosts.size(), -1);
  tree.neighbours.assign(hosts.size(), 0);
  std::vector<std::int32_t> seats = {0};
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const std::int32_t seat = seats[i];
    const int host = hosts[static_cast<std::size_t>(seat)];
    tree.order.push_back(host);
    for (const std::int32_t child : plan::in_order_tree(count, seat).children) {
      if (child <= 0 || child >= count) continue;
      seats.push_back(child);
      const int other = hosts[static_cast<std::size_t>(child)];
      tree.parents[static_cast<std::size_t>(other)] = host;
      ++tree.neighbours[static_cast<std::size_t>(host)];
      ++tree.neighbours[static_cast<std::size_t>(other)];
    }
  }
  return tree;
}

class TreeSearch {
 public:
  explicit TreeSearch(ClusterSearch search) : search_(std::move(search)) { place_hosts(); }

  FoundChannels find() {
    const int group = search_.has_network() ? 2 : 1;
    for (const int channels : search_.channel_counts(group, max_neighbours())) {
      if (channels_ > 0 && !search_.has_steps()) break;
      try_out(channels);
      if (search_.is_good(rate_.megabytes_per_s * channels_)) break;
    }
    return result();
  }

 private:
  // Seats with few neighbours in both trees together get the hosts with the narrowest rails.
  void place_hosts() {
    const int count = search_.host_count();
    std::vector<int> seats(static_cast<std::size_t>(count)), hosts(seats.size());
    std::iota(seats.begin(), seats.end(), 0);
    std::iota(hosts.begin(), hosts.end(), 0);
    const std::vector<std::int32_t> second = plan::second_tree_members(count);
    trees_ = {tree_over(seats), tree_over(second)};
    std::vector<std::int64_t> widths;
    for (const int host : hosts) widths.push_back(search_.kind(host).network_megabytes_per_s);
    std::ranges::stable_sort(hosts, {},
                             [&](int host) { return widths[static_cast<std::size_t>(host)]; });
    if (widths[static_cast<std::size_t>(hosts.front())] !=
        widths[static_cast<std::size_t>(hosts.back())]) {
      std::ranges::stable_sort(seats, {}, [&](int seat) { return neighbours(seat); });
      std::vector<int> sitting(hosts.size());
      for (std::size_t i = 0; i < hosts.size(); ++i)
        sitting[static_cast<std::size_t>(seats[i])] = hosts[i];
      std::vector<int> sitting_second;
      for (const int seat : second)
        sitting_second.push_back(sitting[static_cast<std::size_t>(seat)]);
      trees_ = {tree_over(sitting), tree_over(sitting_second)};
    }
    if (!search_.has_network()) return;
    for (int host = 0; host < count; ++host)
      search_.limit_bound(
          2 * widths[static_cast<std::size_t>(host)] / neighbours(host),
          fmt::format("the ports of host {}, which has {} neighbours in a pair of trees", host,
                      neighbours(host)));
  }

  int max_neighbours() const {
    int most = 1;
    for (int host = 0; host < search_.host_count(); ++host) most = std::max(most, neighbours(host));
    return most;
  }

  int neighbours(int host) const {
    return trees_[0].neighbours[static_cast<std::size_t>(host)] +
           trees_[1].neighbours[static_cast<std::size_t>(host)];
  }

  void try_out(int channels) {
    const ClusterSearch::Rate rate =
        search_.rate([&](int host) { return channels_of(host, channels); });
    if (channels_ > 0 &&
        rate.megabytes_per_s * channels * 100 <= rate_.megabytes_per_s * channels_ * 101)
      return;
    channels_ = channels;
    rate_ = rate;
  }

  // Both trees of a pair on one rail.
  std::vector<HostChannel> channels_of(int host, int channels) const {
    std::vector<HostChannel> found(static_cast<std::size_t>(channels));
    std::vector<int> rails;
    if (search_.has_network()) rails = rails_for(search_.kind(host).routes, channels / 2);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i].is_tree = true;
      if (rails.empty()) continue;
      found[i].entry = found[i].exit = rails[i / 2];
      found[i].neighbours = trees_[i % 2].neighbours[static_cast<std::size_t>(host)];
    }
    return found;
  }

  FoundChannels result() {
    FoundChannels found = summary(search_, ChannelPattern::tree, channels_, rate_);
    const int hosts = search_.host_count();
    std::vector<std::vector<HostChannel>> all;
    for (int host = 0; host < hosts; ++host) all.push_back(channels_of(host, channels_));
    for (int i = 0; i < channels_; ++i)
      found.channels.push_back(channel(static_cast<std::size_t>(i), all));
    return found;
  }

  FoundChannel channel(std::size_t index, const std::vector<std::vector<HostChannel>>& all) {
    const HostTree& tree = trees_[search_.has_network() ? index % 2 : 0];
    FoundChannel made;
    made.parents.assign(static_cast<std::size_t>(search_.cluster().rank_count()), -1);
    std::vector<int> heads(all.size());  // by host
    for (const int host : tree.order) {
      const auto& channels = all[static_cast<std::size_t>(host)];
      const std::vector<int>& members = search_.orders(host, channels).orders[index];
      heads[static_cast<std::size_t>(host)] = search_.rank(host, members.front());
      const int parent = tree.parents[static_cast<std::size_t>(host)];
      int above = parent < 0 ? -1 : heads[static_cast<std::size_t>(parent)];
      for (const int member : members) {
        const int rank = search_.rank(host, member);
        made.order.push_back(rank);
        made.parents[static_cast<std::size_t>(rank)] = above;
        above = rank;
      }
      if (parent < 0) continue;
      const auto port = [&](int end) {
        return search_.kind(end).routes.port(all[static_cast<std::size_t>(end)][index].entry);
      };
      made.crossings.push_back({host, parent, port(host), port(parent)});
    }
    return made;
  }

  ClusterSearch search_;
  std::vector<HostTree> trees_;  // a pair
  int channels_ = 0;             // of the best so far; 0: none yet
  ClusterSearch::Rate rate_;
};

}  // namespace

Result<FoundChannels> find_trees(const Cluster& cluster, const SearchLimits& limits) {
  GYRE_ASSIGN(ClusterSearch search, ClusterSearch::begin(cluster, ChannelPattern::tree, limits));
  return TreeSearch(std::move(search)).find();
}

}  // namespace gyre::topology
