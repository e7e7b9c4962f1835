// RankLayout: how the ranks of a communicator lie on their hosts, as all of them know it from what
// each said when it joined. Rings follow its order, unless a search has found some (RingSearches).
// Hierarchical plans follow its hosts.
#pragma once

#include "lib/control/membership.h"
#include "lib/topology/locality.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::comm {

class RankLayout {
 public:
  RankLayout() = default;
  explicit RankLayout(const control::Roster& roster);

  // Neighbours are near: host by host, then by their GPUs' places on the PCI bus or by what they
  // share. Empty: as the ranks are numbered.
  const std::vector<std::int32_t>& order() const { return order_; }
  // How many hosts there are, if as many ranks are on each; else 1.
  std::int32_t equal_hosts() const { return equal_hosts_; }
  int host_count() const { return static_cast<int>(ranks_on_host_.size()); }
  const topology::HostedLocality& of(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  std::string text() const;  // for the log: "4 hosts of 2 ranks, order 0 4 1 5 ..."

 private:
  void count_hosts();

  std::vector<topology::HostedLocality> ranks_;
  std::vector<std::int32_t> order_;
  std::vector<int> ranks_on_host_;  // by the host's number
  std::int32_t equal_hosts_ = 1;
};

}  // namespace gyre::comm
