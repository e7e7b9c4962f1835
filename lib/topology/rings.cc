// Rings: the search for them over a cluster.
#include "lib/topology/cluster_search.h"

#include <algorithm>
#include <array>

namespace gyre::topology {
namespace {

// How far the rails are shifted at each border between hosts, so that a ring leaves a host by
// another rail than it came by: even borders by nothing, odd ones by `odd`. If the number of hosts
// is odd, the last border is shifted by `last_out` where rings leave for it, and by `last_in` where
// they come in. At all other borders the same rail is at both ends.
struct RailShifts {
  int odd = 0, last_out = 0, last_in = 0;

  int out(int border, int hosts) const { return is_last(border, hosts) ? last_out : at(border); }
  int in(int border, int hosts) const { return is_last(border, hosts) ? last_in : at(border); }

 private:
  static bool is_last(int border, int hosts) { return hosts % 2 == 1 && border == hosts - 1; }
  int at(int border) const { return border % 2 == 1 ? odd : 0; }
};

class RingSearch {
 public:
  explicit RingSearch(ClusterSearch search) : search_(std::move(search)) {}

  FoundChannels find() {
    for (const int channels : search_.channel_counts(1, 1)) {
      if (best_ && !search_.has_steps()) break;
      const std::vector<std::vector<int>> rails = all_rails(channels);
      for (const RailShifts& shifts : shifts_for(channels)) {
        try_out(channels, rails, shifts);
        if (is_good()) return result();
      }
    }
    return result();
  }

 private:
  bool is_good() const { return search_.is_good(best_->rate.megabytes_per_s * best_->channels); }

  struct Candidate {
    int channels = 0;
    std::vector<std::vector<int>> rails;  // see all_rails
    RailShifts shifts;
    ClusterSearch::Rate rate;
  };

  // By host, the rail of each channel; nothing where there is one host.
  std::vector<std::vector<int>> all_rails(int channels) const {
    std::vector<std::vector<int>> rails(static_cast<std::size_t>(search_.host_count()));
    for (int host = 0; search_.has_network() && host < search_.host_count(); ++host)
      rails[static_cast<std::size_t>(host)] = rails_for(search_.kind(host).routes, channels);
    return rails;
  }

  // To the other half of the rails, to the neighbour, or none at all; last of all between two rails
  // at one border: an odd number of hosts can have no ring that changes its half in each.
  std::vector<RailShifts> shifts_for(int channels) const {
    if (!search_.has_network()) return {RailShifts{}};
    const int half = std::max(1, channels / 2), quarter = std::max(1, half / 2);
    return {{half, quarter, quarter}, {1, 2, 2}, {0, 0, 0}, {half, 0, half}};
  }

  void try_out(int channels, const std::vector<std::vector<int>>& rails, const RailShifts& shifts) {
    const ClusterSearch::Rate rate =
        search_.rate([&](int host) { return channels_of(host, channels, rails, shifts); });
    // A hundredth more is worth another channel, no less is.
    if (best_ && rate.megabytes_per_s * channels * 100 <=
                     best_->rate.megabytes_per_s * best_->channels * 101)
      return;
    best_ = Candidate{channels, rails, shifts, rate};
  }

  std::vector<HostChannel> channels_of(int host, int channels,
                                       const std::vector<std::vector<int>>& rails,
                                       const RailShifts& shifts) const {
    std::vector<HostChannel> found(static_cast<std::size_t>(channels));
    if (!search_.has_network()) return found;
    const int hosts = search_.host_count();
    const std::vector<int>& own = rails[static_cast<std::size_t>(host)];
    for (int i = 0; i < channels; ++i) {
      const int in = i + shifts.in((host + hosts - 1) % hosts, hosts);
      const int out = i + shifts.out(host, hosts);
      HostChannel& channel = found[static_cast<std::size_t>(i)];
      channel.entry = own[static_cast<std::size_t>(in % channels)];
      channel.exit = own[static_cast<std::size_t>(out % channels)];
    }
    return found;
  }

  FoundChannels result() {
    const Candidate& best = *best_;
    FoundChannels found = summary(search_, ChannelPattern::ring, best.channels, best.rate);
    found.channels.resize(static_cast<std::size_t>(best.channels));
    const int hosts = search_.host_count();
    std::vector<std::vector<HostChannel>> all;
    for (int host = 0; host < hosts; ++host)
      all.push_back(channels_of(host, best.channels, best.rails, best.shifts));
    for (int host = 0; host < hosts; ++host) {
      const HostOrders& orders = search_.orders(host, all[static_cast<std::size_t>(host)]);
      const int next = (host + 1) % hosts;
      for (std::size_t i = 0; i < found.channels.size(); ++i) {
        FoundChannel& channel = found.channels[i];
        for (const int member : orders.orders[i])
          channel.order.push_back(search_.rank(host, member));
        if (!search_.has_network()) continue;
        const int exit = all[static_cast<std::size_t>(host)][i].exit;
        const int entry = all[static_cast<std::size_t>(next)][i].entry;
        channel.crossings.push_back({host, next, search_.kind(host).routes.port(exit),
                                     search_.kind(next).routes.port(entry)});
      }
    }
    return found;
  }

  ClusterSearch search_;
  std::optional<Candidate> best_;
};

}  // namespace

Result<FoundChannels> find_rings(const Cluster& cluster, const SearchLimits& limits) {
  GYRE_ASSIGN(ClusterSearch search, ClusterSearch::begin(cluster, ChannelPattern::ring, limits));
  return RingSearch(std::move(search)).find();
}

}  // namespace gyre::topology
