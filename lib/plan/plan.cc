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

namespace {

template <typename Takes>
std::vector<bool> links_where(const Lane& lane, bool sends, Takes&& takes) {
  std::vector<bool> used(lane.link_count, false);
  for (std::uint32_t index = 0; index < lane.step_count; ++index) {
    const Step& step = lane.steps[index];
    const LinkRange range = sends ? step.send() : step.recv();
    if (!takes(step)) continue;
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

bool only_stores(const Step& step) {
  return step.recv_count == 1 && step.local == Buffer::none && step.store == Buffer::output &&
         !step.finishes();
}

}  // namespace

std::vector<bool> used_links(const Lane& lane, bool sends) {
  return links_where(lane, sends, [](const Step&) { return true; });
}

std::vector<Stored> stored_links(const Lane& lane) {
  const std::vector<bool> some = links_where(lane, false, only_stores);
  const std::vector<bool> other =
      links_where(lane, false, [](const Step& step) { return !only_stores(step); });
  std::vector<Stored> stored(lane.link_count, Stored::none);
  for (std::size_t link = 0; link < stored.size(); ++link)
    if (some[link]) stored[link] = other[link] ? Stored::some : Stored::all;
  return stored;
}

}  // namespace gyre::plan
