// The control tree: processes by their number in the roster, with the root as 0 and at most eight
// children each. Ten thousand processes are five levels deep, and no process has more than nine
// neighbours.
#pragma once

#include <cstdint>

namespace gyre::control {

inline constexpr std::uint32_t tree_arity = 8;

// Of any process but the root.
constexpr std::uint32_t tree_parent(std::uint32_t process) { return (process - 1) / tree_arity; }

constexpr std::uint32_t tree_first_child(std::uint32_t process) { return process * tree_arity + 1; }

constexpr std::uint32_t tree_children(std::uint32_t process, std::uint32_t processes) {
  const std::uint64_t first = std::uint64_t{process} * tree_arity + 1;
  if (first >= processes) return 0;
  const auto rest = static_cast<std::uint32_t>(processes - first);
  return rest < tree_arity ? rest : tree_arity;
}

// The neighbour of `from` on the way to `to`, which is another. Whoever is below has a higher
// number.
constexpr std::uint32_t tree_next(std::uint32_t from, std::uint32_t to) {
  while (to > from) {
    const std::uint32_t above = tree_parent(to);
    if (above == from) return to;
    to = above;
  }
  return tree_parent(from);
}

}  // namespace gyre::control
