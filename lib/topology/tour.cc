#include "lib/topology/tour.h"

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

namespace gyre::topology {
namespace {

// Held and Karp: the cheapest way from place 0 through every set of places to each of its places.
class ExactTour {
 public:
  explicit ExactTour(const ArcCosts& costs)
      : costs_(costs), others_(costs.count() - 1), ways_(std::size_t{1} << others_) {}

  std::int64_t step_count() const {
    return (std::int64_t{1} << others_) * others_ * others_ / 4 + 1;
  }

  std::vector<int> find() {
    for (int last = 0; last < others_; ++last)
      way(std::size_t{1} << last, last) = {costs_.at(0, last + 1), -1};
    for (std::size_t set = 1; set < ways_.size(); ++set)
      for (int last = 0; last < others_; ++last)
        if ((set >> last & 1) != 0) extend(set, last);
    const std::size_t all = ways_.size() - 1;
    int best = 0;
    for (int last = 1; last < others_; ++last)
      if (closed(all, last) < closed(all, best)) best = last;
    return walk_back(all, best);
  }

 private:
  struct PartialTour {
    std::int64_t cost = LLONG_MAX;
    int before = -1;
  };

  PartialTour& way(std::size_t set, int last) { return ways_[set][static_cast<std::size_t>(last)]; }
  std::int64_t closed(std::size_t set, int last) {
    return way(set, last).cost + costs_.at(last + 1, 0);
  }

  void extend(std::size_t set, int last) {
    const std::int64_t cost = way(set, last).cost;
    for (int next = 0; next < others_; ++next) {
      if ((set >> next & 1) != 0) continue;
      PartialTour& there = way(set | std::size_t{1} << next, next);
      const std::int64_t through = cost + costs_.at(last + 1, next + 1);
      if (through < there.cost) there = {through, last};
    }
  }

  std::vector<int> walk_back(std::size_t set, int last) {
    std::vector<int> tour;
    while (last >= 0) {
      tour.push_back(last + 1);
      const int before = way(set, last).before;
      set &= ~(std::size_t{1} << last);
      last = before;
    }
    tour.push_back(0);
    std::ranges::reverse(tour);
    return tour;
  }

  const ArcCosts& costs_;
  const int others_;
  std::vector<std::array<PartialTour, max_exact_places - 1>> ways_;  // by set of the others
};

// Or-opt: up to three neighbours go elsewhere, as they are or turned round.
class TourImprover {
 public:
  TourImprover(const ArcCosts& costs, std::vector<int> tour, std::int64_t& steps)
      : costs_(costs), tour_(std::move(tour)), steps_(steps) {}

  std::vector<int> improve() {
    for (bool better = true; better && steps_ > 0;) {
      better = false;
      for (int length = 1; length <= 3; ++length)
        for (int first = 1; first + length <= size() && steps_ > 0; ++first)
          better = move_segment(first, length) || better;
    }
    return std::move(tour_);
  }

 private:
  int size() const { return static_cast<int>(tour_.size()); }
  int at(int place) const { return tour_[static_cast<std::size_t>(place % size())]; }
  std::int64_t arc(int from, int to) const { return from == to ? 0 : costs_.at(from, to); }

  std::int64_t inside(int first, int length, bool turned) const {
    std::int64_t cost = 0;
    for (int i = first; i + 1 < first + length; ++i)
      cost += turned ? arc(at(i + 1), at(i)) : arc(at(i), at(i + 1));
    return cost;
  }

  bool move_segment(int first, int length) {
    const int end = first + length;
    const int head = at(first), tail = at(end - 1);
    const std::int64_t as_is = inside(first, length, false), turned = inside(first, length, true);
    const std::int64_t saved =
        arc(at(first - 1), head) + as_is + arc(tail, at(end)) - arc(at(first - 1), at(end));
    std::int64_t best_cost = saved;
    int best_place = -1;
    bool best_turned = false;
    steps_ -= size();
    for (int place = 0; place < size(); ++place) {
      if (place >= first - 1 && place < end) continue;
      const int before = at(place), after = at(place + 1);
      const std::int64_t gap = arc(before, after);
      const std::int64_t kept = arc(before, head) + as_is + arc(tail, after) - gap;
      const std::int64_t reversed = arc(before, tail) + turned + arc(head, after) - gap;
      if (std::min(kept, reversed) >= best_cost) continue;
      best_cost = std::min(kept, reversed);
      best_place = place;
      best_turned = reversed < kept;
    }
    if (best_place < 0) return false;
    move(first, length, best_place, best_turned);
    return true;
  }

  // To behind the place of another.
  void move(int first, int length, int place, bool turned) {
    const auto begin = tour_.begin() + first, end = begin + length;
    if (turned) std::reverse(begin, end);
    if (place < first)
      std::rotate(tour_.begin() + place + 1, begin, end);
    else
      std::rotate(begin, end, tour_.begin() + place + 1);
  }

  const ArcCosts& costs_;
  std::vector<int> tour_;
  std::int64_t& steps_;
};

// From each place to the cheapest that is left.
std::vector<int> nearest_neighbours(const ArcCosts& costs) {
  std::vector<int> tour = {0}, left;
  for (int i = 1; i < costs.count(); ++i) left.push_back(i);
  while (!left.empty()) {
    const auto next =
        std::ranges::min_element(left, {}, [&](int place) { return costs.at(tour.back(), place); });
    tour.push_back(*next);
    left.erase(next);
  }
  return tour;
}

}  // namespace

std::int64_t ArcCosts::of_tour(const std::vector<int>& tour) const {
  std::int64_t cost = 0;
  for (std::size_t i = 0; i < tour.size(); ++i)
    if (const int to = tour[(i + 1) % tour.size()]; to != tour[i]) cost += at(tour[i], to);
  return cost;
}

std::vector<int> cheapest_tour(const ArcCosts& costs, std::vector<int> start, std::int64_t& steps) {
  if (costs.count() <= 2 || steps <= 0) return start;
  if (costs.count() <= max_exact_places) {
    ExactTour exact(costs);
    steps -= exact.step_count();
    std::vector<int> found = exact.find();
    return costs.of_tour(found) < costs.of_tour(start) ? found : start;
  }
  const std::int64_t all_arcs = std::int64_t{costs.count()} * costs.count();
  start = TourImprover(costs, std::move(start), steps).improve();
  if (steps < all_arcs) return start;
  steps -= all_arcs;
  std::vector<int> other = TourImprover(costs, nearest_neighbours(costs), steps).improve();
  return costs.of_tour(other) < costs.of_tour(start) ? other : start;
}

}  // namespace gyre::topology
