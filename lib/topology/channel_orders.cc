#include "lib/topology/channel_orders.h"

#include "lib/topology/tour.h"

#include <algorithm>
#include <numeric>

namespace gyre::topology {
namespace {

// Fullness is in 256ths: 256 is an edge that carries its share of the target and no more.
constexpr std::int64_t full = 256, steep_from = 2 * full, max_fullness = 16 * full;

// Of each edge, however empty: short paths are taken unless the edges there are half full.
constexpr std::int64_t hop_price = full << 6, forbidden_price = hop_price << 20;

// 2^(12 x / full), by straight lines between powers of two and a straight line from `steep_from`.
std::int64_t strain(std::int64_t x) {
  if (x > steep_from) return strain(steep_from) + (x - steep_from) * (strain(steep_from) / 16);
  const std::int64_t exponent = 12 * x;
  return (full + exponent % full) << (exponent / full);
}

// A ring in one host has no outside; all others begin and end there.
bool has_outside(const HostChannel& channel) { return channel.is_tree || channel.entry >= 0; }

void add_loads(const HostRoutes& routes, const HostChannel& channel, const std::vector<int>& order,
               int sign, std::vector<int>& loads) {
  const auto take = [&](int edge, int times) {
    loads[static_cast<std::size_t>(edge)] += sign * times;
  };
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    for_each_edge(routes, channel, order[i], order[i + 1], take);
  if (has_outside(channel)) {
    for_each_edge(routes, channel, -1, order.front(), take);
    for_each_edge(routes, channel, order.back(), -1, take);
  } else if (order.size() > 1) {
    for_each_edge(routes, channel, order.back(), order.front(), take);
  }
}

class OrderSearch {
 public:
  // `only_near`: rails are used by the members nearest to them alone.
  OrderSearch(const HostRoutes& routes, std::span<const HostChannel> channels,
              std::int64_t target_megabytes_per_s, bool only_near, std::int64_t& steps)
      : routes_(routes),
        channels_(channels),
        only_near_(only_near),
        share_(std::max<std::int64_t>(
            1, target_megabytes_per_s / std::max<std::int64_t>(1, std::ssize(channels)))),
        steps_(steps) {
    found_.loads.resize(routes.edges().size());
    found_.orders.resize(channels.size());
  }

  HostOrders find() {
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      // Like the last channel, if that is as good.
      found_.orders[i] = i > 0 ? found_.orders[i - 1] : numbered();
      if (steps_ > 0) found_.orders[i] = reordered(i, &OrderSearch::strained_price);
      add(i, +1);
    }
    constexpr int max_rounds = 4;
    for (int round = 0; round < max_rounds && steps_ > 0; ++round)
      if (!improve_each()) break;
    shorten_each();
    return std::move(found_);
  }

 private:
  std::vector<int> numbered() const {
    std::vector<int> order(static_cast<std::size_t>(routes_.member_count()));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  // Whether a channel got a better order.
  bool improve_each() {
    bool better = false;
    for (std::size_t i = 0; i < channels_.size() && steps_ > 0; ++i) {
      const std::int64_t before = whole_strain();
      better = try_again(i, &OrderSearch::strained_price,
                         [&](std::int64_t rate, std::int64_t now) {
                           return now > rate || (now == rate && whole_strain() < before);
                         }) ||
               better;
    }
    return better;
  }

  // The fewest hops that keep the rate: neighbours share more, and rails are near.
  void shorten_each() {
    rate_ = channel_megabytes_per_s(routes_, found_.loads);
    for (std::size_t i = 0; i < channels_.size() && steps_ > 0; ++i) {
      const std::int64_t before = hop_count();
      (void)try_again(i, &OrderSearch::shortening_price, [&](std::int64_t rate, std::int64_t now) {
        return now >= rate && hop_count() < before;
      });
    }
  }

  // A new order for a channel by these prices, kept if `is_better(old rate, new rate)`.
  template <typename IsBetter>
  bool try_again(std::size_t channel, std::int64_t (OrderSearch::*price)(std::size_t) const,
                 const IsBetter& is_better) {
    const std::int64_t rate = channel_megabytes_per_s(routes_, found_.loads);
    std::vector<int> old = found_.orders[channel];
    add(channel, -1);
    found_.orders[channel] = reordered(channel, price);
    add(channel, +1);
    if (is_better(rate, channel_megabytes_per_s(routes_, found_.loads))) return true;
    add(channel, -1);
    found_.orders[channel] = std::move(old);
    add(channel, +1);
    return false;
  }

  std::int64_t hop_count() const {
    return std::accumulate(found_.loads.begin(), found_.loads.end(), std::int64_t{0});
  }

  std::int64_t strained_price(std::size_t edge) const {
    const int load = found_.loads[edge];
    return hop_price + strain(fullness(edge, load + 1)) - strain(fullness(edge, load));
  }

  std::int64_t shortening_price(std::size_t edge) const {
    const bool has_room = (found_.loads[edge] + 1) * rate_ <= routes_.edges()[edge].megabytes_per_s;
    return has_room ? hop_price : forbidden_price;
  }

  std::int64_t whole_strain() const {
    std::int64_t sum = 0;
    for (std::size_t edge = 0; edge < found_.loads.size(); ++edge)
      sum += strain(fullness(edge, found_.loads[edge]));
    return sum;
  }

  std::int64_t fullness(std::size_t edge, std::int64_t load) const {
    return std::min<std::int64_t>(load * share_ * full / routes_.edges()[edge].megabytes_per_s,
                                  max_fullness);
  }

  void add(std::size_t channel, int sign) {
    add_loads(routes_, channels_[channel], found_.orders[channel], sign, found_.loads);
  }

  // The cheapest order for a channel that is in no load yet.
  std::vector<int> reordered(std::size_t channel,
                             std::int64_t (OrderSearch::*price)(std::size_t) const) {
    const int outside = has_outside(channels_[channel]) ? 1 : 0, members = routes_.member_count();
    std::vector<std::int64_t> prices(found_.loads.size());
    for (std::size_t edge = 0; edge < prices.size(); ++edge) prices[edge] = (this->*price)(edge);
    ArcCosts costs(members + outside);
    for (int from = -outside; from < members; ++from)
      for (int to = -outside; to < members; ++to) {
        if (from == to) continue;
        for_each_edge(routes_, channels_[channel], from, to, [&](int edge, int times) {
          costs.at(from + outside, to + outside) += times * prices[static_cast<std::size_t>(edge)];
        });
        const int rail = from < 0 ? channels_[channel].entry : channels_[channel].exit;
        const int member = std::max(from, to);
        if (only_near_ && (from < 0 || to < 0) && rail >= 0 && !routes_.is_near(member, rail) &&
            (from < 0 || !channels_[channel].is_tree))
          costs.at(from + outside, to + outside) += forbidden_price;
      }
    steps_ -= std::int64_t{costs.count()} * costs.count();
    std::vector<int> tour;
    if (outside > 0) tour.push_back(0);
    for (const int member : found_.orders[channel]) tour.push_back(member + outside);
    // A tour begins with place 0.
    std::rotate(tour.begin(), std::ranges::find(tour, 0), tour.end());
    tour = cheapest_tour(costs, std::move(tour), steps_);
    tour.erase(tour.begin(), tour.begin() + outside);
    for (int& place : tour) place -= outside;
    return tour;
  }

  const HostRoutes& routes_;
  const std::span<const HostChannel> channels_;
  const bool only_near_;
  const std::int64_t share_;  // of a channel, in megabytes per second
  std::int64_t rate_ = 0;     // that shorter orders have to keep
  std::int64_t& steps_;
  HostOrders found_;
};

}  // namespace

HostOrders find_orders(const HostRoutes& routes, std::span<const HostChannel> channels,
                       std::int64_t target_megabytes_per_s, std::int64_t& steps) {
  HostOrders near = OrderSearch(routes, channels, target_megabytes_per_s, true, steps).find();
  const auto rate = channel_megabytes_per_s(routes, near.loads);
  const bool is_enough = rate * std::ssize(channels) >= target_megabytes_per_s / 100 * 98;
  if (is_enough || channels.front().entry < 0 || steps <= 0) return near;
  HostOrders any = OrderSearch(routes, channels, target_megabytes_per_s, false, steps).find();
  // Near rails are worth a fiftieth of the rate.
  return channel_megabytes_per_s(routes, any.loads) * 49 > rate * 50 ? any : near;
}

HostOrders with_loads(const HostRoutes& routes, std::span<const HostChannel> channels,
                      std::vector<std::vector<int>> orders) {
  HostOrders made{std::move(orders), std::vector<int>(routes.edges().size())};
  for (std::size_t i = 0; i < channels.size(); ++i)
    add_loads(routes, channels[i], made.orders[i], +1, made.loads);
  return made;
}

int narrowest_edge(const HostRoutes& routes, const std::vector<int>& loads) {
  int narrowest = -1;
  std::int64_t least = 0;
  for (std::size_t edge = 0; edge < loads.size(); ++edge) {
    if (loads[edge] <= 0) continue;
    const std::int64_t rate = routes.edges()[edge].megabytes_per_s / loads[edge];
    if (narrowest >= 0 && rate >= least) continue;
    narrowest = static_cast<int>(edge);
    least = rate;
  }
  return narrowest;
}

std::int64_t channel_megabytes_per_s(const HostRoutes& routes, const std::vector<int>& loads) {
  const int edge = narrowest_edge(routes, loads);
  const auto index = static_cast<std::size_t>(edge);
  if (edge < 0) return whole_megabytes(local_gigabytes_per_s);
  return routes.edges()[index].megabytes_per_s / loads[index];
}

}  // namespace gyre::topology
