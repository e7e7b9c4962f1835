// Totals: what a symbolic value is made of. A total is one rank's contribution, or totals in the
// order in which they were combined; equal totals have equal numbers, so two ranks hold the same
// bits exactly if their totals are equal.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gyre::plan {

using Total = std::uint32_t;

class Totals {
 public:
  explicit Totals(std::int32_t rank_count);

  static Total of_rank(std::int32_t rank) { return static_cast<Total>(rank); }
  Total sum(const std::vector<Total>& parts);

  // The contributions in it, in the order in which they were combined.
  std::vector<std::int32_t> ranks(Total total) const;
  // Most additions that one contribution went through.
  std::uint32_t roundings(Total total) const { return roundings_[total]; }

 private:
  std::map<std::vector<Total>, Total> sums_;
  std::vector<const std::vector<Total>*> parts_;  // by total; null for one rank
  std::vector<std::uint32_t> roundings_;
};

}  // namespace gyre::plan
