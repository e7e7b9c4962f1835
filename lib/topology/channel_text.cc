#include "lib/topology/channel_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace gyre::topology {
namespace {

class ChannelText {
 public:
  ChannelText(const Cluster& cluster, ChannelPattern pattern)
      : cluster_(cluster), pattern_(pattern) {
    for (std::size_t host = 0; host < cluster_.hosts.size(); ++host)
      for (const ClusterMember& member : cluster_.hosts[host].members)
        hosts_[member.rank] = static_cast<int>(host);
  }

  std::string line(std::size_t index, const FoundChannel& channel) const {
    std::string text = fmt::format("{} {}:", pattern_name(pattern_), index);
    int host = -1;
    for (const int rank : channel.order) {
      const int now = hosts_.at(rank);
      if (now != host && host >= 0) text += crossing(channel, now);
      host = now;
      text += fmt::format(" {}", rank);
    }
    if (pattern_ == ChannelPattern::ring && cluster_.hosts.size() > 1)
      text += crossing(channel, hosts_.at(channel.order.front()));
    return text;
  }

 private:
  // How the ring comes to a host, or the host's head to its parent.
  std::string crossing(const FoundChannel& channel, int host) const {
    const bool is_tree = pattern_ == ChannelPattern::tree;
    const auto one = std::ranges::find(channel.crossings, host,
                                       is_tree ? &HostCrossing::from_host : &HostCrossing::to_host);
    const std::string from = port(one->from_host, one->from_port);
    const std::string to = port(one->to_host, one->to_port);
    if (!is_tree) return fmt::format(" ({} to {})", from, to);
    for (const int rank : channel.order)
      if (hosts_.at(rank) == host)
        return fmt::format(
            "; under {} ({} to {}):", channel.parents[static_cast<std::size_t>(rank)], from, to);
    return {};
  }

  std::string port(int host, int node) const {
    return cluster_.topology(cluster_.hosts[static_cast<std::size_t>(host)]).node(node).name;
  }

  const Cluster& cluster_;
  const ChannelPattern pattern_;
  std::map<int, int> hosts_;  // by rank
};

}  // namespace

std::vector<std::string> channel_lines(const Cluster& cluster, const FoundChannels& found) {
  const ChannelText text(cluster, found.pattern);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < found.channels.size(); ++i)
    lines.push_back(text.line(i, found.channels[i]));
  return lines;
}

}  // namespace gyre::topology
