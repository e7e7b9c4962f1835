// Two-shot: block j goes straight to rank j, is summed there in rank order, and goes straight back
// to all. It has two message latencies and the fewest bytes, but n - 1 links a rank. From one root
// it is a scatter and an all-gather (van de Geijn's broadcast, with straight messages). To one root
// it is a reduce-scatter and a gather.
#include "lib/plan/draft.h"

#include <algorithm>

namespace gyre::plan {

namespace {

// To all, or to the root alone.
PlanParts summed(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const std::int32_t rest = n - 1;
  const bool share = shares(request.collective);
  const bool to_root = request.collective == Collective::reduce;
  const bool is_root = request.rank == request.root;
  const Group group{all_ranks(n), request.rank};
  const Peers others = group.to(+1, rest);  // a cyclic range, so that it leaves out this rank
  Draft own{Buffer::input,          Buffer::output, others,
            only_if(share, others), group.block(0), step_flag::finish};
  if (to_root && !is_root) {
    own.store = Buffer::none;
    own.send = one(request.root);
  }
  Drafts drafts = {sending(Buffer::input, group.to(+1, 1, +1), group.block(+1, +1, rest)), own};
  if (share || (to_root && is_root))
    drafts.push_back(taking(group.to(-1, 1, -1), group.block(-1, -1, rest)));

  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  parts.lanes.push_back(make_lane(drafts, without(all_ranks(n), request.rank)));
  parts.min_depth = share && n > 1 ? 2 : 1;  // both messages of a pair of ranks at once
  parts.direct_in_place = true;
  return parts;
}

PlanParts gathered(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const Group group{all_ranks(n), request.rank};
  const Drafts drafts = {{Buffer::input, Buffer::output, {}, group.to(+1, n - 1), group.block(0)},
                         taking(group.to(-1, 1, -1), group.block(-1, -1, n - 1))};
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  parts.lanes.push_back(make_lane(drafts, without(all_ranks(n), request.rank)));
  parts.direct_in_place = true;
  return parts;
}

// The root has no chunk of its own: chunk k goes to the k-th rank after it, who passes it on.
PlanParts broadcast(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const Group ranks{all_ranks(n), request.rank};
  const std::int32_t seat = (request.rank - request.root + n) % n;
  Group others{ranks_from(request.root, n), std::max(seat - 1, 0)};
  if (n > 1) others.ranks = without(others.ranks, request.root);
  Drafts drafts;
  if (seat == 0) {
    drafts.push_back(
        sending(Buffer::input, ranks.to(+1, 1, +1), others.block(0, +1, others.size())));
    drafts.push_back({Buffer::input, Buffer::output, {}, {}, others.block(0, 0, 1, others.size())});
  } else {
    // Around this rank there come some others, the root, and the rest of the others.
    const std::int32_t after = n - 1 - seat;
    const std::int32_t before = seat - 1;
    drafts.push_back(
        {Buffer::none, Buffer::output, one(request.root), ranks.to(+1, after), others.block(0)});
    drafts.push_back(sending(Buffer::output, ranks.to(-before, before), others.block(0)));
    drafts.push_back(taking(ranks.to(-1, 1, -1), others.block(-1, -1, before)));
    drafts.push_back(taking(ranks.to(-before - 2, 1, -1), others.block(-before - 1, -1, after)));
  }
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(others.size()));
  parts.lanes.push_back(make_lane(drafts, without(all_ranks(n), request.rank)));
  parts.direct_in_place = true;
  return parts;
}

}  // namespace

PlanParts build_two_shot(const PlanRequest& request) {
  if (request.collective == Collective::broadcast) return broadcast(request);
  return sums(request.collective) ? summed(request) : gathered(request);
}

}  // namespace gyre::plan
