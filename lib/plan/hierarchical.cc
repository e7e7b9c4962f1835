// Hierarchical: reduce-scatter in each host, all-reduce across hosts, all-gather in each host, by
// rings. Each phase is a lane, so that they overlap. A token on a link of the rank to itself says
// that its block is in the output.
#include "lib/plan/ring.h"

#include <algorithm>

namespace gyre::plan {

namespace {

// Channels: one for each phase, one for each token.
constexpr std::int32_t reduce_channel = 0;
constexpr std::int32_t across_channel = 1;
constexpr std::int32_t share_channel = 2;
constexpr std::int32_t summed_channel = 3;
constexpr std::int32_t shared_channel = 4;
// Rings that a phase in a host is cut into: up to three steps each, of max_steps in a lane.
constexpr std::int32_t max_parts = 16;

Draft token(const Peers& from, const Peers& to) {
  Chunks nothing;
  nothing.span = 0;
  return {Buffer::none, Buffer::none, from, to, nothing, step_flag::always_send};
}

// A ring of blocks as rings of `chunks` chunks of each block, one after the other. If a message
// held a whole block, its pieces would share one slot, and those that cross hosts were as small.
Drafts in_parts(const Drafts& ring, std::int32_t block_chunks, std::int32_t chunks) {
  Drafts parts;
  for (std::int32_t first = 0; first < block_chunks; first += chunks) {
    for (Draft draft : ring) {
      draft.chunks.first += static_cast<std::uint32_t>(first);
      draft.chunks.span = static_cast<std::uint32_t>(std::min(chunks, block_chunks - first));
      parts.push_back(draft);
    }
  }
  return parts;
}

}  // namespace

// The order is host by host. The block of a rank's place in its host is what the rank sums with the
// ranks of the same place elsewhere.
PlanParts build_hierarchical(const PlanRequest& request) {
  const std::vector<std::int32_t> order =
      request.order.empty() ? all_ranks(request.rank_count) : request.order;
  const auto at = static_cast<std::int32_t>(std::ranges::find(order, request.rank) - order.begin());
  const std::int32_t per_host = request.rank_count / request.hosts;
  const std::int32_t host = at / per_host;
  const std::int32_t place = at % per_host;
  const auto rank_at = [&](std::int32_t of_host, std::int32_t in_it) {
    return order[static_cast<std::size_t>(of_host * per_host + in_it)];
  };
  Group near{{}, place, 0, request.hosts, reduce_channel};
  for (std::int32_t i = 0; i < per_host; ++i) near.ranks.push_back(rank_at(host, i));
  const std::uint32_t block = static_cast<std::uint32_t>(place * request.hosts);
  Group far{{}, host, block, 1, across_channel};
  for (std::int32_t i = 0; i < request.hosts; ++i) far.ranks.push_back(rank_at(i, place));

  const std::int32_t part =
      per_host > 1 ? (request.hosts + max_parts - 1) / max_parts : request.hosts;
  const Peers summed = one(request.rank, summed_channel);
  const Peers shared = one(request.rank, shared_channel);
  Drafts first =
      in_parts(ring_drafts(near, {true, false, Buffer::input, false}), request.hosts, part);
  first.push_back(token({}, summed));
  Drafts second = {token(summed, {})};
  append(second, ring_drafts(far, {true, true, Buffer::output, true}));
  second.push_back(token({}, shared));
  near.channel = share_channel;
  Drafts third = {token(shared, {})};
  append(third,
         in_parts(ring_drafts(near, {false, true, Buffer::output, false}), request.hosts, part));

  PlanParts parts = parts_for(request, static_cast<std::uint32_t>(request.rank_count));
  for (const Drafts& drafts : {first, second, third}) parts.lanes.push_back(make_lane(drafts));
  if (per_host > 1) parts.message_chunks = static_cast<std::uint32_t>(part);
  parts.min_depth = request.hosts > 1 || per_host > 2 ? 2 : 1;
  parts.direct_in_place = true;
  return parts;
}

}  // namespace gyre::plan
