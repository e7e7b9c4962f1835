// Bruck: all-to-all in ceil(log2 n) exchanges, for small blocks. A block's distance w is how many
// ranks ahead its target is. In exchange k, all blocks whose distance has bit k set move 2^k ranks
// on. At rank r, a block with distance w lies at place r + w of the scratch; w stays the same at
// every hop. At the end, the block at place r + w came from rank r - w. Messages from the rank to
// itself then reverse the order. (J. Bruck et al., "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE TPDS 8(11), 1997.)
#include "lib/plan/draft.h"

#include <algorithm>

namespace gyre::plan {

namespace {

// Places of the ways that have the bit `hop` set and are below n: whole runs as one message, what
// is left of the last one as another.
std::vector<Chunks> hopping(const Group& group, std::int32_t hop) {
  const std::int32_t n = group.size();
  const std::int32_t whole = n / (2 * hop);
  const std::int32_t rest = std::max(n % (2 * hop) - hop, 0);
  std::vector<Chunks> runs;
  if (whole > 0) {
    Chunks run = group.block(hop, 0, whole, hop);
    run.stride = 2 * hop;
    runs.push_back(run);
  }
  if (rest > 0) runs.push_back(group.block(whole * 2 * hop + hop, 0, 1, rest));
  return runs;
}

}  // namespace

PlanParts build_bruck(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const Group group{all_ranks(n), request.rank};
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  Drafts drafts = {{Buffer::input, Buffer::scratch, {}, {}, group.block(0, 0, 1, n)}};
  for (std::int32_t hop = 1; hop < n; hop *= 2) {
    const std::vector<Chunks> runs = hopping(group, hop);
    for (const Chunks& run : runs) {
      drafts.push_back(sending(Buffer::scratch, group.to(+hop), run, step_flag::pack));
      parts.message_chunks = std::max(parts.message_chunks, run.span * run.repeat);
    }
    for (const Chunks& run : runs)
      drafts.push_back({Buffer::none, Buffer::scratch, group.to(-hop), {}, run, step_flag::pack});
    if (runs.size() > 1) parts.min_depth = 2;
  }
  const Peers self = one(request.rank);
  drafts.push_back(sending(Buffer::scratch, self, group.block(0, +1, n), step_flag::paired));
  drafts.push_back(taking(self, group.block(0, -1, n)));
  parts.lanes.push_back(make_lane(drafts));
  parts.scratch_chunks = parts.chunk_count;
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
