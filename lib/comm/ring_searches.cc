#include "lib/comm/ring_searches.h"

#include <algorithm>
#include <utility>

namespace gyre::comm {
namespace {

// As many as the communicators that a framework makes for one model, twice.
constexpr std::size_t max_kept_searches = 16;

Result<std::shared_ptr<const topology::FoundChannels>> search(const topology::Cluster& cluster,
                                                              int max_channels) {
  GYRE_ASSIGN(topology::FoundChannels rings,
              topology::find_rings(cluster, {.max_channels = max_channels}));
  return std::make_shared<const topology::FoundChannels>(std::move(rings));
}

}  // namespace

Result<std::shared_ptr<const topology::FoundChannels>> RingSearches::find(
    const topology::Cluster& cluster, int max_channels) {
  const std::lock_guard lock(mutex_);
  for (const KeptSearch& one : known_)
    if (one.max_channels == max_channels && one.cluster == cluster) return one.found;
  if (known_.size() == max_kept_searches) known_.pop_front();
  known_.push_back({cluster, max_channels, search(cluster, max_channels)});
  return known_.back().found;
}

std::vector<std::vector<std::int32_t>> ring_orders(const topology::FoundChannels& found) {
  std::vector<std::vector<std::int32_t>> orders;
  for (const topology::FoundChannel& channel : found.channels) {
    std::vector<std::int32_t> order(channel.order.begin(), channel.order.end());
    std::ranges::rotate(order, std::ranges::find(order, 0));
    orders.push_back(std::move(order));
  }
  const bool is_one = std::ranges::all_of(
      orders, [&](const std::vector<std::int32_t>& order) { return order == orders.front(); });
  if (is_one) orders.resize(1);
  return orders;
}

}  // namespace gyre::comm
