// Linear: gather and scatter. The root serves one rank after the other.
#include "lib/plan/draft.h"

namespace gyre::plan {

PlanParts build_linear(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const Group group{all_ranks(n), request.rank};
  const bool is_root = request.rank == request.root;
  const bool sends = (request.collective == Collective::scatter) == is_root;
  Drafts drafts;
  Peers peers = one(request.root);
  Chunks chunks = group.block(0);
  if (is_root) {
    drafts.push_back({Buffer::input, Buffer::output, {}, {}, chunks});
    peers = group.to(+1, 1, +1);
    chunks = group.block(+1, +1, n - 1);
  }
  drafts.push_back(sends ? sending(Buffer::input, peers, chunks) : taking(peers, chunks));
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  parts.lanes.push_back(make_lane(drafts, without(all_ranks(n), request.rank)));
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
