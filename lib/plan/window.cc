// Window: all-gather as Bruck's, reduce-scatter as its mirror (PAT without a limit to its buffers),
// all-reduce as both: ceil(log2 n) exchanges each, for any n. A rank sums over a window of chunks
// that begins at its own. Each exchange gives the upper half of the window away.
#include "lib/plan/draft.h"

#include <algorithm>

namespace gyre::plan {

namespace {

struct Halves {
  Drafts summing;
  Drafts sharing;
};

Halves window_drafts(const Group& group, Buffer accumulator) {
  Halves halves;
  Buffer local = Buffer::input;
  for (std::int32_t width = group.size(); width > 1;) {
    const std::int32_t give = width / 2;
    const std::int32_t stay = width - give;
    const Chunks head = group.block(0, 0, 1, give);
    const Chunks tail = group.block(stay, 0, 1, give);
    const Peers ahead = group.to(+stay);
    const Peers behind = group.to(-stay);
    halves.summing.push_back(sending(local, ahead, tail));
    halves.summing.push_back({local, accumulator, behind, {}, head});
    // Of an odd window, the middle chunk has no partner in the first exchange: it is just kept.
    if (width == group.size() && stay > give) {
      halves.summing.push_back({local, accumulator, {}, {}, group.block(give)});
    }
    const Drafts back = {sending(Buffer::output, behind, head), taking(ahead, tail)};
    halves.sharing.insert(halves.sharing.begin(), back.begin(), back.end());
    width = stay;
    local = accumulator;
  }
  return halves;
}

}  // namespace

PlanParts build_window(const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  const bool sum = sums(request.collective);
  const bool share = shares(request.collective);
  const Group group{all_ranks(n), request.rank};
  Halves halves = window_drafts(group, share ? Buffer::output : Buffer::scratch);

  Drafts drafts;
  Draft own{Buffer::input, Buffer::output, {}, {}, group.block(0)};
  if (sum && n > 1) {
    own = halves.summing.back();  // the last exchange leaves the own chunk
    own.store = Buffer::output;
    halves.summing.pop_back();
  }
  own.flags = sum ? step_flag::finish : std::uint16_t{0};
  if (sum) append(drafts, halves.summing);
  drafts.push_back(own);
  if (share) append(drafts, halves.sharing);

  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(n));
  parts.lanes.push_back(make_lane(drafts));
  parts.scratch_chunks = sum && !share ? parts.chunk_count : 0;
  parts.message_chunks = static_cast<std::uint32_t>(std::max(n / 2, 1));
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
