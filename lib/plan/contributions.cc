#include "lib/plan/contributions.h"

#include <algorithm>

namespace gyre::plan {

Contributions::Contributions(std::int32_t rank_count)
    : parts_(static_cast<std::size_t>(rank_count), nullptr),
      roundings_(static_cast<std::size_t>(rank_count), 0) {}

Contribution Contributions::sum(const std::vector<Contribution>& parts) {
  const auto [place, is_new] = sums_.try_emplace(parts, static_cast<Contribution>(parts_.size()));
  if (is_new) {
    std::uint32_t most = 0;
    for (const Contribution part : parts) most = std::max(most, roundings_[part]);
    parts_.push_back(&place->first);
    roundings_.push_back(most + 1);
  }
  return place->second;
}

std::vector<std::int32_t> Contributions::ranks(Contribution contribution) const {
  std::vector<std::int32_t> found;
  std::vector<Contribution> open = {contribution};
  while (!open.empty()) {
    const Contribution next = open.back();
    open.pop_back();
    if (parts_[next] == nullptr) {
      found.push_back(static_cast<std::int32_t>(next));
    } else {
      open.insert(open.end(), parts_[next]->rbegin(), parts_[next]->rend());
    }
  }
  return found;
}

}  // namespace gyre::plan
