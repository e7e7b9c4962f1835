// The shape of the double binary tree, for the builder and for searches that place it on machines.
// A seat is a place in a tree; the root has seat 0.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre::plan {

struct TreeNode {
  std::int32_t parent = 0;
  std::vector<std::int32_t> children;  // seats; those outside of 1 .. n - 1 do not exist
};

// The binary tree whose in-order walk is 0, 1, 2, ..., hung under seat 0. The lowest bit of a seat
// is its height; children are half of that to both sides, nearer where the tree ends early.
TreeNode in_order_tree(std::int32_t n, std::int32_t seat);

// Which member has each seat of the second tree, where seat i of the first tree is member i's. It
// is the first tree shifted by a member, or mirrored if n is even: then each member is a leaf in
// one of them, and both carry half of the data.
std::vector<std::int32_t> second_tree_members(std::int32_t n);

}  // namespace gyre::plan
