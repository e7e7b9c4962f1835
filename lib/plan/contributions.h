// Contributions: the parts of a symbolic value. A contribution is one rank's input, or several
// contributions in the order in which they were combined. Equal ones have equal numbers. So two
// ranks hold the same bits exactly if their contributions are equal.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gyre::plan {

using Contribution = std::uint32_t;

class Contributions {
 public:
  explicit Contributions(std::int32_t rank_count);

  static Contribution of_rank(std::int32_t rank) { return static_cast<Contribution>(rank); }
  Contribution sum(const std::vector<Contribution>& parts);

  // The contributions in it, in the order in which they were combined.
  std::vector<std::int32_t> ranks(Contribution contribution) const;
  // Most additions that one contribution went through.
  std::uint32_t roundings(Contribution contribution) const { return roundings_[contribution]; }

 private:
  std::map<std::vector<Contribution>, Contribution> sums_;
  std::vector<const std::vector<Contribution>*> parts_;  // by contribution; null for one rank
  std::vector<std::uint32_t> roundings_;
};

}  // namespace gyre::plan
