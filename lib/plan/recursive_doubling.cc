// Recursive doubling: in exchange k, ranks whose seats differ in bit k send each other their
// partial sums. If n is not a power of two, each odd rank beyond it stands behind the even rank
// below it: it hands its data over before and takes the result after.
#include "lib/plan/folded.h"

namespace gyre::plan {

namespace {

// Send; then sum what came, keep it and send it on.
Drafts doubling(const Seats& seats, std::int32_t seat, Buffer local) {
  if (seats.size() == 1) return {{local, Buffer::output, {}, {}, {}, step_flag::finish}};
  Drafts drafts;
  const auto partner = [&](std::int32_t half) {
    return half < seats.size() ? one(seats.rank(seat ^ half)) : Peers();
  };
  // The sum of a rank with another behind it lies in the output, which the next step overwrites.
  const std::uint16_t stays = local == Buffer::output ? step_flag::staged : 0;
  drafts.push_back(sending(local, partner(1), {}, stays));
  for (std::int32_t half = 1; half < seats.size(); half *= 2) {
    const Peers next = partner(half * 2);
    drafts.push_back({half == 1 ? local : Buffer::output,
                      Buffer::output,
                      partner(half),
                      next,
                      {},
                      next.count == 0 ? step_flag::finish : std::uint16_t{0}});
  }
  return drafts;
}

}  // namespace

PlanParts build_recursive_doubling(const PlanRequest& request) {
  PlanParts parts = parts_for(request, 1);
  const Seats seats(request.rank_count);
  const std::int32_t rank = request.rank;
  Drafts drafts;
  if (seats.stands_behind(rank)) {
    drafts = {sending(Buffer::input, one(rank - 1), {}), taking(one(rank - 1), {})};
  } else if (seats.stands_in_front(rank)) {
    drafts = {taking(one(rank + 1), {}, Buffer::input)};
    append(drafts, doubling(seats, seats.seat(rank), Buffer::output));
    drafts.push_back(sending(Buffer::output, one(rank + 1), {}));
  } else {
    drafts = doubling(seats, seats.seat(rank), Buffer::input);
  }
  parts.lanes.push_back(make_lane(drafts));
  // In place, the first sum overwrites the input that the partner has yet to read.
  parts.direct_in_place = request.rank_count == 1;
  return parts;
}

}  // namespace gyre::plan
