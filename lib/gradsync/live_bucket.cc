#include "lib/gradsync/live_bucket.h"

#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <cstring>

namespace gyre::gradsync {

Result<LiveBucket> LiveBucket::make(Bucket plan, std::span<const Tensor> tensors,
                                    std::optional<ElementType> wire) {
  LiveBucket made;
  made.plan_ = std::move(plan);
  const bool narrows = wire && made.plan_.type == ElementType::float32;
  made.wire_type_ = narrows ? *wire : made.plan_.type;
  const bool has_views =
      std::any_of(made.plan_.slices.begin(), made.plan_.slices.end(),
                  [&](const Slice& slice) { return tensors[slice.tensor].gradient == nullptr; });
  if (has_views || !narrows) {
    GYRE_ASSIGN(made.memory_, allocate(made.plan_.bytes()));
  }
  if (narrows) {
    GYRE_ASSIGN(made.wire_, allocate(made.wire_bytes()));
  }
  return made;
}

std::byte* LiveBucket::view(const Slice& slice) const {
  return static_cast<std::byte*>(memory_.get()) + slice.first * element_bytes(plan_.type);
}

std::byte* LiveBucket::wire_place(const Slice& slice) const {
  return static_cast<std::byte*>(data()) + slice.first * element_bytes(wire_type_);
}

std::byte* LiveBucket::gradient_place(const Slice& slice, const Tensor& tensor) const {
  return tensor.gradient != nullptr ? static_cast<std::byte*>(tensor.gradient) : view(slice);
}

void LiveBucket::take(const Slice& slice, const Tensor& tensor) const {
  kernels::convert({.from = plan_.type,
                    .source = gradient_place(slice, tensor),
                    .to = wire_type_,
                    .target = wire_place(slice),
                    .count = tensor.count});
}

void LiveBucket::clear(const Slice& slice, const Tensor& tensor) const {
  std::memset(wire_place(slice), 0, tensor.count * element_bytes(wire_type_));
}

void LiveBucket::give(const Slice& slice, const Tensor& tensor, float factor) const {
  kernels::convert({.from = wire_type_,
                    .source = wire_place(slice),
                    .to = plan_.type,
                    .target = gradient_place(slice, tensor),
                    .count = tensor.count,
                    .factor = factor});
}

}  // namespace gyre::gradsync
