// Trees: chain, binomial, star and the double binary tree. A tree is a shape (each rank's parent)
// over an order of ranks. Up and down are two lanes, so that pieces flow in both directions at
// once.
#include "lib/plan/draft.h"

#include <algorithm>
#include <bit>

namespace gyre::plan {

namespace {

// A seat is a place in the tree's order; the root has seat 0.
struct TreeNode {
  std::int32_t parent = 0;
  RankList children;  // seats; those outside of 1 .. n - 1 do not exist
};

using TreeShape = TreeNode (*)(std::int32_t n, std::int32_t seat);

std::int32_t lowest_bit(std::int32_t value) { return value & -value; }

// The lowest power of two that is not below n.
std::int32_t power_above(std::int32_t n) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(n)));
}

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

// The binary tree whose in-order walk is 0, 1, 2, ..., hung under seat 0. The lowest bit of a seat
// is its height; children are half of that to both sides, nearer where the tree ends early.
TreeNode in_order(std::int32_t n, std::int32_t seat) {
  const std::int32_t bit = seat == 0 ? power_above(n) : lowest_bit(seat);
  TreeNode family;
  const std::int64_t parent = (seat ^ bit) | (static_cast<std::int64_t>(bit) << 1);
  family.parent = parent < n ? static_cast<std::int32_t>(parent) : seat & (seat - 1);
  if (bit > 1) family.children.push_back(seat - bit / 2);
  std::int32_t hop = bit / 2;
  while (hop > 0 && hop >= n - seat) hop /= 2;
  if (hop > 0) family.children.push_back(seat + hop);
  return family;
}

struct Tree {
  RankList ranks;  // by seat
  TreeShape shape;
  std::uint32_t chunk;
  std::int32_t channel;
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

void add_lanes(PlanParts& parts, const Tree& tree) {
  const std::int32_t n = parts.rank_count;
  const bool sum = sums(parts.collective);
  const bool share = shares(parts.collective);
  const auto own = std::find(tree.ranks.begin(), tree.ranks.end(), parts.rank);
  const std::int32_t seat = static_cast<std::int32_t>(own - tree.ranks.begin());
  const TreeNode family = tree.shape(n, seat);
  RankList children;
  for (const std::int32_t child : family.children) {
    if (child > 0 && child < n) children.push_back(tree.ranks[static_cast<std::size_t>(child)]);
  }
  const Peers up = one(tree.ranks[static_cast<std::size_t>(family.parent)], tree.channel);
  const Peers down = below(children, up.first.peer, n, tree.channel);
  Chunks chunk;
  chunk.base = tree.chunk;

  if (seat == 0) {
    const Draft turn{
        Buffer::input,        Buffer::output, only_if(sum, down),
        only_if(share, down), chunk,          sum ? step_flag::finish : std::uint16_t{0}};
    parts.lanes.push_back(make_lane({turn}, children, tree.channel));
    return;
  }
  if (sum) {
    const Draft step{Buffer::input, Buffer::none, down, up, chunk};
    parts.lanes.push_back(make_lane({step}, children, tree.channel));
  }
  if (share) {
    const Draft step{Buffer::none, Buffer::output, up, down, chunk};
    parts.lanes.push_back(make_lane({step}, children, tree.channel));
  }
}

PlanParts rooted(const PlanRequest& request, TreeShape shape) {
  PlanParts parts = parts_for(request, 1);
  parts.direct_in_place = true;
  add_lanes(parts, {ranks_from(request.root, request.rank_count), shape, 0, 0});
  return parts;
}

}  // namespace

PlanParts build_chain(const PlanRequest& request) { return rooted(request, chain); }
PlanParts build_binomial(const PlanRequest& request) { return rooted(request, binomial); }
PlanParts build_star(const PlanRequest& request) { return rooted(request, star); }

// The second tree is the first one shifted by a rank, or mirrored if n is even: then each rank is a
// leaf in one of them and both carry half of the data.
PlanParts build_tree(const PlanRequest& request) {
  if (request.collective != Collective::all_reduce) return build_binomial(request);
  PlanParts parts = parts_for(request, 2);
  parts.direct_in_place = true;
  const std::int32_t n = request.rank_count;
  RankList second = n % 2 == 1 ? ranks_from(1 % n, n) : all_ranks(n);
  if (n % 2 == 0) std::reverse(second.begin(), second.end());
  add_lanes(parts, {all_ranks(n), in_order, 0, 0});
  add_lanes(parts, {second, in_order, 1, 1});
  return parts;
}

}  // namespace gyre::plan
