// Parts that builders share. In a draft of a lane, steps name peers; make_lane turns the names into
// link indices.
#pragma once

#include "lib/plan/algorithms.h"
#include "lib/plan/plan.h"

#include <cstdint>
#include <vector>

namespace gyre::plan {

// The links that begin at `first`, in the lane's order; none if count is 0.
struct Peers {
  Link first;
  std::uint32_t count = 0;
  std::int16_t stride = 0;
};

struct Draft {
  Buffer local = Buffer::none;
  Buffer store = Buffer::none;
  Peers recv;
  Peers send;
  Chunks chunks;
  std::uint16_t flags = 0;
};

using Drafts = std::vector<Draft>;
using RankList = std::vector<std::int32_t>;

Peers one(std::int32_t peer, std::int32_t channel = 0);
inline Peers only_if(bool condition, const Peers& peers) { return condition ? peers : Peers(); }
Draft sending(Buffer local, const Peers& to, const Chunks& chunks, std::uint16_t flags = 0);
Draft taking(const Peers& from, const Chunks& chunks, Buffer local = Buffer::none,
             std::uint16_t flags = 0);
void append(Drafts& to, const Drafts& from);

// A lane with a link to each peer that a draft names and to each of `others`, up to which counts
// reach. Drafts that repeat zero times, or neither communicate nor copy, are left out.
LaneSteps make_lane(const Drafts& drafts, const RankList& others = {}, std::int32_t channel = 0);

PlanParts parts_for(const PlanRequest& request, std::uint32_t chunk_count);
RankList all_ranks(std::int32_t rank_count);                      // 0, 1, ...
RankList ranks_from(std::int32_t root, std::int32_t rank_count);  // root, root + 1, ..., cyclic
RankList without(RankList ranks, std::int32_t rank);

// The ranks of one phase in order, and this rank's place in it. Member k's block is the chunks
// base + [k * span, (k + 1) * span).
struct Group {
  RankList ranks;
  std::int32_t place = 0;
  std::uint32_t base = 0;
  std::int32_t span = 1;
  std::int32_t channel = 0;

  std::int32_t size() const { return static_cast<std::int32_t>(ranks.size()); }
  // The member so far ahead, cyclic; nobody if that is this rank.
  Peers to(std::int32_t distance, std::int32_t count = 1, std::int16_t stride = 0) const;
  // The block so far ahead; each of `repeat` repeats goes on by `direction` blocks.
  Chunks block(std::int32_t distance, std::int32_t direction = 0, std::int32_t repeat = 1,
               std::int32_t blocks = 1) const;
};

}  // namespace gyre::plan
