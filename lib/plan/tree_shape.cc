#include "lib/plan/tree_shape.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace gyre::plan {
namespace {

// The lowest power of two that is not below n.
std::int32_t power_above(std::int32_t n) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(n)));
}

}  // namespace

TreeNode in_order_tree(std::int32_t n, std::int32_t seat) {
  const std::int32_t bit = seat == 0 ? power_above(n) : seat & -seat;
  TreeNode family;
  const std::int64_t parent = (seat ^ bit) | (static_cast<std::int64_t>(bit) << 1);
  family.parent = parent < n ? static_cast<std::int32_t>(parent) : seat & (seat - 1);
  if (bit > 1) family.children.push_back(seat - bit / 2);
  std::int32_t hop = bit / 2;
  while (hop > 0 && hop >= n - seat) hop /= 2;
  if (hop > 0) family.children.push_back(seat + hop);
  return family;
}

std::vector<std::int32_t> second_tree_members(std::int32_t n) {
  std::vector<std::int32_t> members(static_cast<std::size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  if (n % 2 == 0)
    std::reverse(members.begin(), members.end());
  else
    std::rotate(members.begin(), members.begin() + 1 % n, members.end());
  return members;
}

}  // namespace gyre::plan
