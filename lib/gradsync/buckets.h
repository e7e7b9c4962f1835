// Decides which gradients are reduced together. A bucket is a value: slices side by side, of one
// type.
#pragma once

#include "lib/gradsync/tensors.h"

#include <span>
#include <vector>

namespace gyre::gradsync {

// Slices begin at multiples of so many bytes: a line of the processor's cache.
inline constexpr std::uint64_t slice_alignment = 64;

struct Slice {
  std::size_t tensor;
  std::uint64_t first;  // element of the bucket
  friend bool operator==(const Slice&, const Slice&) = default;
};

struct Bucket {
  ElementType type = ElementType::float32;
  std::uint64_t count = 0;  // elements, with what is left free between slices
  std::vector<Slice> slices;
  friend bool operator==(const Bucket&, const Bucket&) = default;

  std::uint64_t bytes() const { return count * element_bytes(type); }
};

struct BucketLimits {
  std::uint64_t first_bytes;  // of the first bucket of each type
  std::uint64_t bytes;
};

// Buckets of `order`'s tensors, each once: one is full when it holds so many bytes or more. A
// tensor of so many gets one of its own. They come in the order in which they are full; what is
// left at the end, a bucket for each type, comes last.
std::vector<Bucket> lay_out(std::span<const Tensor> tensors, std::span<const std::size_t> order,
                            BucketLimits limits);

}  // namespace gyre::gradsync
