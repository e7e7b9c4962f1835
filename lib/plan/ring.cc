// Ring: n chunks; each goes round once to be summed and once to be shared. An all-reduce has five
// steps whatever n is, either half has three.
#include "lib/plan/ring.h"

#include <algorithm>

namespace gyre::plan {

Drafts ring_drafts(const Group& group, const RingPhases& phases) {
  const Peers behind = group.to(-1);
  const Peers ahead = group.to(+1);
  const std::int32_t between = group.size() - 2;
  Drafts drafts;
  if (phases.sums) {
    drafts.push_back(sending(phases.local, ahead, group.block(-1)));
    drafts.push_back({phases.local, Buffer::none, behind, ahead, group.block(-2, -1, between)});
  }
  const bool stores = phases.sums || phases.local == Buffer::input;
  const std::uint16_t finish = phases.sums && phases.finishes ? step_flag::finish : 0;
  drafts.push_back({phases.local, stores ? Buffer::output : Buffer::none,
                    only_if(phases.sums, behind), only_if(phases.shares, ahead), group.block(0),
                    finish});
  if (phases.shares) {
    drafts.push_back({Buffer::none, Buffer::output, behind, ahead, group.block(-1, -1, between)});
    drafts.push_back(taking(behind, group.block(+1)));
  }
  return drafts;
}

PlanParts build_ring(const PlanRequest& request) {
  if (request.collective == Collective::broadcast || request.collective == Collective::reduce) {
    return build_chain(request);
  }
  const std::int32_t n = request.rank_count;
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  Group group{request.order.empty() ? all_ranks(n) : request.order};
  const auto place = std::find(group.ranks.begin(), group.ranks.end(), request.rank);
  group.place = static_cast<std::int32_t>(place - group.ranks.begin());
  RingPhases phases;
  phases.sums = sums(request.collective);
  phases.shares = shares(request.collective);
  parts.lanes.push_back(make_lane(ring_drafts(group, phases)));
  parts.owners = request.order;
  // Everybody sends before receiving; in an all-reduce the two halves overlap as well.
  const bool both = phases.sums && phases.shares;
  parts.min_depth = n > (both ? 1 : 2) ? 2 : 1;
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
