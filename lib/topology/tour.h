// Tours: the cheapest way round a few places (the travelling salesman's), for costs that may differ
// by direction. Exact for up to `max_exact_places`, else improved from a given order until nothing
// gets better or the steps are used up. Deterministic: costs and steps are whole numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre::topology {

inline constexpr int max_exact_places = 11;

// The costs of all arcs between `count` places; that from a place to itself is not read.
class ArcCosts {
 public:
  explicit ArcCosts(int count)
      : count_(count), costs_(static_cast<std::size_t>(count) * static_cast<std::size_t>(count)) {}

  int count() const { return count_; }
  std::int64_t& at(int from, int to) { return costs_[place(from, to)]; }
  std::int64_t at(int from, int to) const { return costs_[place(from, to)]; }
  std::int64_t of_tour(const std::vector<int>& tour) const;

 private:
  std::size_t place(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(count_) +
           static_cast<std::size_t>(to);
  }

  int count_;
  std::vector<std::int64_t> costs_;
};

// The places in the order of the tour, beginning with place 0; so does `start`. `steps`: what may
// still be looked at, in arcs; gets less.
std::vector<int> cheapest_tour(const ArcCosts& costs, std::vector<int> start, std::int64_t& steps);

}  // namespace gyre::topology
