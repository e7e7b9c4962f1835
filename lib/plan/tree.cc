// Trees: chain, binomial, star and the double binary tree. A tree is a shape (each rank's parent)
// over an order of ranks. Up and down are two lanes, so that pieces flow in both directions at
// once.
#include "lib/plan/draft.h"
#include "lib/plan/tree_shape.h"

#include <algorithm>

namespace gyre::plan {

namespace {

using TreeShape = TreeNode (*)(std::int32_t n, std::int32_t seat);

std::int32_t lowest_bit(std::int32_t value) { return value & -value; }

TreeNode chain(std::int32_t, std::int32_t seat) { return {std::max(seat - 1, 0), {seat + 1}}; }

TreeNode binomial(std::int32_t n, std::int32_t seat) {
  TreeNode family{seat & (seat - 1), {}};
  const std::int32_t end = seat == 0 ? n : lowest_bit(seat);
  for (std::int32_t hop = 1; hop < end && hop < n - seat; hop *= 2) {
    family.children.push_back(seat + hop);
  }
  return family;
}

TreeNode star(std::int32_t n, std::int32_t seat) {
  return {0, seat == 0 ? without(all_ranks(n), 0) : RankList()};
}

// A rank's neighbours in one tree.
struct Family {
  std::int32_t parent = 0;  // the rank itself if it is the root
  RankList children;
};

// The links to the children as one cyclic range, which leaves out the link to the parent: it begins
// with the first child after the parent.
Peers below(const RankList& children, std::int32_t parent, std::int32_t n, std::int32_t channel) {
  if (children.empty()) return {};
  const auto behind_parent = [=](std::int32_t child) { return (child - parent + n) % n; };
  const std::int32_t first = *std::min_element(
      children.begin(), children.end(),
      [&](std::int32_t a, std::int32_t b) { return behind_parent(a) < behind_parent(b); });
  return {{first, channel}, static_cast<std::uint32_t>(children.size()), 0};
}

// `ranks`: by seat.
Family family_of(std::int32_t rank, const RankList& ranks, TreeShape shape) {
  const std::int32_t n = static_cast<std::int32_t>(ranks.size());
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  const TreeNode node = shape(n, static_cast<std::int32_t>(own - ranks.begin()));
  Family family{ranks[static_cast<std::size_t>(node.parent)], {}};
  for (const std::int32_t child : node.children)
    if (child > 0 && child < n) family.children.push_back(ranks[static_cast<std::size_t>(child)]);
  return family;
}

// `parents`: by rank, -1 for the root's.
Family family_of(std::int32_t rank, const RankList& parents) {
  const std::int32_t parent = parents[static_cast<std::size_t>(rank)];
  Family family{parent < 0 ? rank : parent, {}};
  for (std::int32_t other = 0; other < static_cast<std::int32_t>(parents.size()); ++other)
    if (parents[static_cast<std::size_t>(other)] == rank) family.children.push_back(other);
  return family;
}

// The tree carries chunk number `index`, on the channel of that number.
void add_lanes(PlanParts& parts, const Family& family, std::int32_t index) {
  const bool sum = sums(parts.collective);
  const bool share = shares(parts.collective);
  parts.max_lanes += (sum ? 1 : 0) + (share ? 1 : 0);
  const RankList& children = family.children;
  const Peers up = one(family.parent, index);
  const Peers down = below(children, up.first.peer, parts.rank_count, index);
  Chunks chunk;
  chunk.base = static_cast<std::uint32_t>(index);

  if (family.parent == parts.rank) {
    const Draft turn{
        Buffer::input,        Buffer::output, only_if(sum, down),
        only_if(share, down), chunk,          sum ? step_flag::finish : std::uint16_t{0}};
    parts.lanes.push_back(make_lane({turn}, children, index));
    return;
  }
  if (sum) {
    const Draft step{Buffer::input, Buffer::none, down, up, chunk};
    parts.lanes.push_back(make_lane({step}, children, index));
  }
  if (share) {
    const Draft step{Buffer::none, Buffer::output, up, down, chunk};
    parts.lanes.push_back(make_lane({step}, children, index));
  }
}

// `ranks`: from the root on.
PlanParts rooted(const PlanRequest& request, const RankList& ranks, TreeShape shape) {
  PlanParts parts = parts_for(request, 1);
  parts.direct_in_place = true;
  add_lanes(parts, family_of(request.rank, ranks, shape), 0);
  return parts;
}

PlanParts rooted(const PlanRequest& request, TreeShape shape) {
  return rooted(request, ranks_from(request.root, request.rank_count), shape);
}

}  // namespace

PlanParts build_chain(const PlanRequest& request) {
  if (request.order.empty()) return rooted(request, chain);
  RankList ranks = request.order;
  std::rotate(ranks.begin(), std::find(ranks.begin(), ranks.end(), request.root), ranks.end());
  return rooted(request, ranks, chain);
}
PlanParts build_binomial(const PlanRequest& request) { return rooted(request, binomial); }
PlanParts build_star(const PlanRequest& request) { return rooted(request, star); }

PlanParts build_tree(const PlanRequest& request) {
  if (request.collective != Collective::all_reduce) return build_binomial(request);
  const std::int32_t n = request.rank_count;
  const bool is_given = !request.trees.empty();
  PlanParts parts =
      parts_for(request, is_given ? static_cast<std::uint32_t>(request.trees.size()) : 2);
  parts.direct_in_place = true;
  std::int32_t index = 0;
  for (const RankList& parents : request.trees)
    add_lanes(parts, family_of(request.rank, parents), index++);
  if (is_given) return parts;
  add_lanes(parts, family_of(request.rank, all_ranks(n), in_order_tree), 0);
  add_lanes(parts, family_of(request.rank, second_tree_members(n), in_order_tree), 1);
  return parts;
}

}  // namespace gyre::plan
