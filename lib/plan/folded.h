// Seats: a power of two of them for any number of ranks, for algorithms that pair ranks by bits.
// Each odd rank beyond that number has no seat and stands behind the even rank below it.
#pragma once

#include "lib/plan/draft.h"

#include <bit>

namespace gyre::plan {

class Seats {
 public:
  explicit Seats(std::int32_t rank_count)
      : size_(static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(rank_count)))),
        excess_(rank_count - size_) {}

  std::int32_t size() const { return size_; }
  bool anyone_stands_behind() const { return excess_ > 0; }
  bool stands_behind(std::int32_t rank) const { return rank < 2 * excess_ && rank % 2 == 1; }
  bool stands_in_front(std::int32_t rank) const { return rank < 2 * excess_ && rank % 2 == 0; }
  std::int32_t seat(std::int32_t rank) const {
    return rank < 2 * excess_ ? rank / 2 : rank - excess_;
  }
  std::int32_t rank(std::int32_t seat) const { return seat < excess_ ? 2 * seat : seat + excess_; }

 private:
  std::int32_t size_;
  std::int32_t excess_;
};

}  // namespace gyre::plan
