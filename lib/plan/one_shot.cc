// One-shot: every rank sends everything to every rank, and each sums in rank order. It has one
// message latency and n - 1 times the bytes, so it is for the smallest sizes.
#include "lib/plan/draft.h"

namespace gyre::plan {

PlanParts build_one_shot(const PlanRequest& request) {
  PlanParts parts = parts_for(request, 1);
  const RankList others = without(all_ranks(request.rank_count), request.rank);
  Peers everyone;
  if (!others.empty()) everyone = {{others.front(), 0}, static_cast<std::uint32_t>(others.size())};
  const Drafts drafts = {sending(Buffer::input, everyone, {}),
                         taking(everyone, {}, Buffer::input, step_flag::finish)};
  parts.lanes.push_back(make_lane(drafts, others));
  // In place, a fast rank would overwrite the input that a slow one has yet to read.
  parts.direct_in_place = request.rank_count == 1;
  return parts;
}

}  // namespace gyre::plan
