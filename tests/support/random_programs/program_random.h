// Parts of a program that are drawn independently of its other steps.
#pragma once

#include "tests/support/random_programs/program.h"

#include <random>

namespace gyre::tests {

class Random {
 public:
  explicit Random(std::uint32_t seed) : source_(seed) {}
  std::uint64_t bits() { return source_(); }
  int below(int most) { return static_cast<int>(source_() % static_cast<std::uint64_t>(most)); }
  bool one_in(int chances) { return below(chances) == 0; }
  template <typename List>
  auto& pick(List& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(list.size())))];
  }
  std::mt19937_64& source() { return source_; }

 private:
  std::mt19937_64 source_;
};

// Ranks, threads, settings, and communicator 0.
void draw_world(Random& random, Temper temper, Program& program);
// Elements of each of so many blocks: often few, sometimes none, sometimes more than a slot.
std::size_t draw_count(Random& random, ElementType type, std::size_t blocks);
// Counts and places of the v-forms, with at most call.count elements a block.
void draw_tables(Random& random, Call& call);

}  // namespace gyre::tests
