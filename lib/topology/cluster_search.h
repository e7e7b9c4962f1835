// The part that the searches for rings and trees share. Equal hosts are looked at once, and several
// numbers of channels are tried. Not for use beyond this room.
#pragma once

#include "lib/topology/channel_orders.h"
#include "lib/topology/channels.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace gyre::topology {

// Hosts of one machine with ranks on the same nodes.
struct HostKind {
  const Topology* topology = nullptr;
  HostRoutes routes;
  BandwidthBound bound;
  std::int64_t network_megabytes_per_s = 0;  // of all members together
};

class ClusterSearch {
 public:
  static Result<ClusterSearch> begin(const Cluster& cluster, ChannelPattern pattern,
                                     const SearchLimits& limits);

  const Cluster& cluster() const { return *cluster_; }
  int host_count() const { return static_cast<int>(cluster_->hosts.size()); }
  bool has_network() const { return host_count() > 1; }
  const HostKind& kind(int host) const {
    return kinds_[static_cast<std::size_t>(kind_of_[static_cast<std::size_t>(host)])];
  }
  // As `given` of the host's ClusterMembers; `member` of its routes.
  int rank(int host, int member) const;

  // The least of all hosts'; `limit_bound` makes it less.
  const BandwidthBound& bound() const { return bound_; }
  void limit_bound(std::int64_t megabytes_per_s, const std::string& reason);

  // One host's orders, from memory if an equal host asked for the same. If the steps are used up,
  // those of a like host may be better.
  const HostOrders& orders(int host, const std::vector<HostChannel>& channels);

  // How many channels to try, in order. They come in groups, and a group passes a rail so often.
  // Limits the bound to what so many channels can carry.
  std::vector<int> channel_counts(int group, int passes);
  bool is_good(std::int64_t all_megabytes_per_s) const;
  bool has_steps() const { return steps_ > 0; }
  std::int64_t steps_used() const { return max_steps_ - steps_; }

  // The rate of a channel, where each host's channels are given, and the edge that sets it.
  struct Rate {
    std::int64_t megabytes_per_s = 0;
    std::string limit;
  };
  Rate rate(const std::function<std::vector<HostChannel>(int host)>& channels_of);

 private:
  explicit ClusterSearch(const Cluster& cluster) : cluster_(&cluster) {}
  Status find_kinds(ChannelPattern pattern, std::size_t room);
  // Of the same kind and by the same rails, whatever the trees' neighbours are; null if there are
  // none.
  const HostOrders* orders_like(int kind_index, const std::vector<HostChannel>& channels) const;
  std::int64_t max_channel_megabytes_per_s() const;
  // What each of so many groups has of its rail where that is least.
  std::int64_t rail_share(int groups) const;

  const Cluster* cluster_;
  std::vector<HostKind> kinds_;
  std::vector<int> kind_of_;  // by host
  BandwidthBound bound_;
  std::int64_t max_steps_ = 0, steps_ = 0, flow_steps_ = 0;
  int max_channels_ = 1;
  std::map<std::pair<int, std::vector<HostChannel>>, HostOrders> memory_;
};

// The rail of each channel, in the order of rails: wide rails get more channels.
std::vector<int> rails_for(const HostRoutes& routes, int channels);

// The result but for its channels.
FoundChannels summary(const ClusterSearch& search, ChannelPattern pattern, int channels,
                      const ClusterSearch::Rate& rate);

}  // namespace gyre::topology
