#include "lib/plan/plan.h"

#include <algorithm>

namespace gyre::plan {

namespace {
constexpr std::string_view collective_names[collective_count] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast",
    "reduce",     "all_to_all",     "gather",     "scatter"};
}

std::string_view collective_name(Collective collective) {
  return collective_names[static_cast<int>(collective)];
}

Lane Plan::lane(std::uint32_t index) const {
  const LaneSteps& lane = parts_.lanes[index];
  const auto below = std::count_if(lane.links.begin(), lane.links.end(),
                                   [this](const Link& link) { return link.peer < parts_.rank; });
  std::vector<std::int32_t> to;
  for (const Link& link : lane.links)
    if (link.peer != parts_.rank && (to.empty() || to.back() != link.peer)) to.push_back(link.peer);
  const auto others = static_cast<std::size_t>(parts_.rank_count - 1);
  return {lane.links.data(),
          lane.steps.data(),
          static_cast<std::uint32_t>(lane.links.size()),
          static_cast<std::uint32_t>(lane.steps.size()),
          static_cast<std::uint32_t>(below),
          to.size() == others && lane.links.size() == others};
}

std::vector<bool> used_links(const Lane& lane, bool sends) {
  std::vector<bool> used(lane.link_count, false);
  for (std::uint32_t index = 0; index < lane.step_count; ++index) {
    const Step& step = lane.steps[index];
    const LinkRange range = sends ? step.send() : step.recv();
    for (std::uint32_t repeat = 0; repeat < step.chunks.repeat && range.count > 0; ++repeat) {
      const std::int64_t shift = static_cast<std::int64_t>(repeat) * range.stride;
      const std::int64_t links = lane.link_count;
      const std::int64_t first = ((range.first + shift) % links + links) % links;
      for (std::int64_t k = 0; k < range.count; ++k)
        used[static_cast<std::size_t>((first + k) % links)] = true;
    }
  }
  return used;
}

}  // namespace gyre::plan
