// Pairwise: all-to-all in n exchanges, each with one partner. In repeat i, ranks meet whose numbers
// add up to i modulo n. So partners are mutual, and each rank is once its own partner.
#include "lib/plan/draft.h"

namespace gyre::plan {

PlanParts build_pairwise(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const std::int32_t first = (n - request.rank) % n;
  const std::uint32_t count = static_cast<std::uint32_t>(n);
  const Peers partner{{first, 0}, 1, 1};
  const Chunks chunk{0, static_cast<std::uint32_t>(first), 1, count, 1, count};
  const Drafts drafts = {sending(Buffer::input, partner, chunk, step_flag::paired),
                         taking(partner, chunk)};
  PlanParts parts = parts_for(request, count);
  parts.lanes.push_back(make_lane(drafts, all_ranks(n)));
  // In place, what arrives overwrites what the partner has yet to read.
  parts.direct_in_place = n == 1;
  return parts;
}

}  // namespace gyre::plan
