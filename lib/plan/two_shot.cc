// Two-shot: block j straight to rank j, summed there in rank order, straight back to all. Two
// message latencies and the fewest bytes, but n - 1 links a rank.
#include "lib/plan/draft.h"

namespace gyre::plan {

PlanParts build_two_shot(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const std::int32_t rest = n - 1;
  const bool sum = sums(request.collective);
  const bool share = shares(request.collective);
  const Group group{all_ranks(n), request.rank};
  const Peers others = group.to(+1, rest);  // a cyclic range, so that it leaves out this rank
  Drafts drafts;
  if (sum) {
    drafts.push_back(sending(Buffer::input, group.to(+1, 1, +1), group.block(+1, +1, rest)));
  }
  drafts.push_back({Buffer::input, Buffer::output, only_if(sum, others), only_if(share, others),
                    group.block(0), sum ? step_flag::finish : std::uint16_t{0}});
  if (share) drafts.push_back(taking(group.to(-1, 1, -1), group.block(-1, -1, rest)));

  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  parts.lanes.push_back(make_lane(drafts, without(all_ranks(n), request.rank)));
  parts.least_depth = sum && share && n > 1 ? 2 : 1;  // both messages of a pair of ranks at once
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
