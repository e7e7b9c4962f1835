// Halving and doubling (Rabenseifner): ranks at distance n/2, n/4, ... exchange halves of the part
// that they still sum, and then share the result in the reverse order. If n is not a power of two,
// each odd rank beyond it stands behind the even rank below it.
#include "lib/plan/folded.h"

#include <algorithm>

namespace gyre::plan {

namespace {

struct PairExchange {
  std::int32_t half;  // distance of the seats, and chunks that each gives
  std::int32_t give;  // first chunk of those
  std::int32_t keep;
  Buffer local;
  Buffer add;  // what to sum with what comes; none in the second phase
};

class Builder {
 public:
  Builder(const Seats& seats, std::int32_t grain)
      : seats_(seats), grain_(std::clamp(grain == 0 ? seats.size() : grain, 1, seats.size())) {
    while ((grain_ & (grain_ - 1)) != 0) grain_ &= grain_ - 1;  // a power of two, to divide halves
  }

  // Whoever stands behind another sends all, the others half at most.
  std::uint32_t message_chunks() const {
    const std::int32_t most =
        seats_.anyone_stands_behind() ? grain_ : std::min(grain_, seats_.size() / 2);
    return static_cast<std::uint32_t>(std::max(most, 1));
  }
  // All the data, in messages of a grain.
  Chunks whole() const { return run(0, seats_.size()); }

  Drafts drafts(std::int32_t seat, Buffer local) const {
    const std::int32_t size = seats_.size();
    if (size == 1) return {{local, Buffer::output, {}, {}, {}, step_flag::finish}};
    Drafts made;
    for (std::int32_t half = size / 2; half > 0; half /= 2) {
      const std::int32_t keep = seat & -half;
      append(made, exchange(seat, {half, keep ^ half, keep, local, local}));
      local = Buffer::output;
    }
    for (std::int32_t half = 1; half < size; half *= 2) {
      const std::int32_t give = seat & -half;
      append(made, exchange(seat, {half, give, give ^ half, local, Buffer::none}));
    }
    return made;
  }

 private:
  Chunks run(std::int32_t first, std::int32_t count) const {
    const std::int32_t span = std::min(count, grain_);
    return {0,
            static_cast<std::uint32_t>(first),
            span,
            static_cast<std::uint32_t>(count / span),
            static_cast<std::uint32_t>(span),
            static_cast<std::uint32_t>(seats_.size())};
  }

  Drafts exchange(std::int32_t seat, const PairExchange& act) const {
    const Peers partner = one(seats_.rank(seat ^ act.half));
    const bool finishes = act.add != Buffer::none && act.half == 1;
    const std::uint16_t pairs = act.half > grain_ ? step_flag::paired : 0;
    return {sending(act.local, partner, run(act.give, act.half), pairs),
            taking(partner, run(act.keep, act.half), act.add,
                   finishes ? step_flag::finish : std::uint16_t{0})};
  }

  const Seats& seats_;
  std::int32_t grain_;
};

}  // namespace

PlanParts build_halving_doubling(const PlanRequest& request) {
  const Seats seats(request.rank_count);
  const Builder builder(seats, request.grain);
  const std::int32_t rank = request.rank;
  const Chunks whole = builder.whole();
  Drafts drafts;
  if (seats.stands_behind(rank)) {
    drafts = {sending(Buffer::input, one(rank - 1), whole), taking(one(rank - 1), whole)};
  } else if (seats.stands_in_front(rank)) {
    drafts = {taking(one(rank + 1), whole, Buffer::input)};
    append(drafts, builder.drafts(seats.seat(rank), Buffer::output));
    drafts.push_back(sending(Buffer::output, one(rank + 1), whole));
  } else {
    drafts = builder.drafts(seats.seat(rank), Buffer::input);
  }
  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(seats.size()));
  parts.lanes.push_back(make_lane(drafts));
  parts.message_chunks = builder.message_chunks();
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
