// RingSearches: the rings that were found over the machines of communicators' hosts, and the orders
// of ranks that plans take from them, one for each channel. The ranks of a process ask for the same
// ones, and so do communicators of the same ranks. So a process keeps what it found.
#pragma once

#include "lib/links/planned_ports.h"
#include "lib/topology/channels.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre::comm {

class RingSearches {
 public:
  // As all ranks find them that ask with the same arguments. An error: there are none. Ranks of two
  // builds whose searches differ must not meet: who changes what a search finds raises the version
  // in HostBackend::join_info.
  Result<std::shared_ptr<const topology::FoundChannels>> find(const topology::Cluster& cluster,
                                                              int max_channels);

 private:
  struct KeptSearch {
    topology::Cluster cluster;
    int max_channels = 0;
    Result<std::shared_ptr<const topology::FoundChannels>> found;
  };
  std::mutex mutex_;
  std::deque<KeptSearch> known_;  // the oldest first
};

// Each begins with rank 0. Only one if all are the same.
std::vector<std::vector<std::int32_t>> ring_orders(const topology::FoundChannels& found);

// The ports that a rank's links to ranks of other hosts take: those by which rings cross between
// the two ranks, each pair of ports once. A link's way back takes them as well if no ring goes that
// way: it carries the credits.
PortsByPeer ring_ports(const topology::Cluster& cluster, const topology::FoundChannels& found,
                       int rank);

}  // namespace gyre::comm
