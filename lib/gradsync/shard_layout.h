// The layout of a sharded model's unit in memory: its tensors side by side, cut into equal shares.
// A value, the same on all ranks.
#pragma once

#include "lib/gradsync/tensors.h"

#include <vector>

namespace gyre::gradsync {

// Tensors begin, and shares end, at multiples of so many elements. Sums of squares are worked out
// in blocks of so many, so that they are the same however a unit is cut.
inline constexpr std::uint64_t shard_alignment = 64;

// A run of elements of one tensor.
struct ShardPiece {
  std::size_t tensor;
  std::uint64_t first;   // element of the tensor
  std::uint64_t count;   // elements
  std::uint64_t offset;  // of its first element, from the share's begin
};

struct UnitLayout {
  struct TensorSlot {
    std::size_t tensor;
    std::uint64_t first;  // element of the unit
    std::uint64_t count;
  };
  ElementType type = ElementType::float32;
  std::vector<TensorSlot> slots;
  std::uint64_t share_count = 0;  // elements of a share
  std::uint64_t shares = 1;

  std::uint64_t count() const { return share_count * shares; }
  std::uint64_t bytes() const { return count() * element_bytes(type); }
  std::uint64_t share_bytes() const { return share_count * element_bytes(type); }
  // What share `share` has of each tensor.
  std::vector<ShardPiece> pieces_of(std::uint64_t share) const;
};

// Refuses a gap in the units' numbers, and a unit of two types.
Result<std::vector<UnitLayout>> lay_out_units(std::span<const Tensor> tensors,
                                              std::uint64_t factor);

}  // namespace gyre::gradsync
