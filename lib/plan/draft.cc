#include "lib/plan/draft.h"

#include <algorithm>
#include <numeric>

namespace gyre::plan {

namespace {

std::uint32_t modulo(std::int64_t value, std::int64_t size) {
  return static_cast<std::uint32_t>((value % size + size) % size);
}

bool does_something(const Draft& draft) {
  const bool copies = draft.local != Buffer::none && draft.store != Buffer::none;
  return draft.chunks.repeat > 0 && (draft.recv.count > 0 || draft.send.count > 0 || copies);
}

std::uint32_t link_index(const std::vector<Link>& links, const Peers& peers) {
  if (peers.count == 0) return 0;
  const auto found = std::lower_bound(links.begin(), links.end(), peers.first);
  return static_cast<std::uint32_t>(found - links.begin());
}

}  // namespace

Peers one(std::int32_t peer, std::int32_t channel) { return {{peer, channel}, 1, 0}; }

Draft sending(Buffer local, const Peers& to, const Chunks& chunks, std::uint16_t flags) {
  return {local, Buffer::none, {}, to, chunks, flags};
}

Draft taking(const Peers& from, const Chunks& chunks, Buffer local, std::uint16_t flags) {
  return {local, Buffer::output, from, {}, chunks, flags};
}

void append(Drafts& to, const Drafts& from) { to.insert(to.end(), from.begin(), from.end()); }

LaneSteps make_lane(const Drafts& drafts, const RankList& others, std::int32_t channel) {
  LaneSteps lane;
  for (const std::int32_t rank : others) lane.links.push_back({rank, channel});
  for (const Draft& draft : drafts) {
    if (!does_something(draft)) continue;
    if (draft.recv.count > 0) lane.links.push_back(draft.recv.first);
    if (draft.send.count > 0) lane.links.push_back(draft.send.first);
  }
  std::sort(lane.links.begin(), lane.links.end());
  lane.links.erase(std::unique(lane.links.begin(), lane.links.end()), lane.links.end());

  for (const Draft& draft : drafts) {
    if (!does_something(draft)) continue;
    Step step;
    step.local = draft.local;
    step.store = draft.store;
    step.flags = draft.flags;
    step.recv_stride = draft.recv.stride;
    step.send_stride = draft.send.stride;
    step.recv_first = link_index(lane.links, draft.recv);
    step.recv_count = draft.recv.count;
    step.send_first = link_index(lane.links, draft.send);
    step.send_count = draft.send.count;
    step.chunks = draft.chunks;
    lane.steps.push_back(step);
  }
  return lane;
}

PlanParts parts_for(const PlanRequest& request, std::uint32_t chunk_count) {
  PlanParts parts;
  parts.collective = request.collective;
  parts.rank_count = request.rank_count;
  parts.rank = request.rank;
  parts.root = request.root;
  parts.chunk_count = chunk_count;
  return parts;
}

RankList all_ranks(std::int32_t rank_count) { return ranks_from(0, rank_count); }

RankList ranks_from(std::int32_t root, std::int32_t rank_count) {
  RankList ranks(static_cast<std::size_t>(rank_count));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::rotate(ranks.begin(), ranks.begin() + root, ranks.end());
  return ranks;
}

RankList without(RankList ranks, std::int32_t rank) {
  ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
  return ranks;
}

Peers Group::to(std::int32_t distance, std::int32_t count, std::int16_t stride) const {
  const std::int32_t peer = ranks[modulo(place + distance, size())];
  if (peer == ranks[static_cast<std::size_t>(place)]) return {};
  return {{peer, channel}, static_cast<std::uint32_t>(count), stride};
}

Chunks Group::block(std::int32_t distance, std::int32_t direction, std::int32_t repeat,
                    std::int32_t blocks) const {
  const std::int64_t wrap = static_cast<std::int64_t>(size()) * span;
  const std::int64_t first = (static_cast<std::int64_t>(place) + distance) * span;
  return {base,
          modulo(first, wrap),
          direction * span,
          static_cast<std::uint32_t>(std::max(repeat, 0)),
          static_cast<std::uint32_t>(blocks * span),
          static_cast<std::uint32_t>(wrap)};
}

}  // namespace gyre::plan
