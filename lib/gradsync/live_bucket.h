// LiveBucket: a bucket with its memory: the place of its gradients, the data that crosses the
// links, and the passes between the two.
#pragma once

#include "lib/gradsync/buckets.h"

#include <optional>

namespace gyre::gradsync {

class LiveBucket {
 public:
  // `wire`: float32 is rounded to it on the wire.
  static Result<LiveBucket> make(Bucket plan, std::span<const Tensor> tensors,
                                 std::optional<ElementType> wire);

  const Bucket& plan() const { return plan_; }
  // Where a gradient without memory of the caller's lies.
  std::byte* view(const Slice& slice) const;
  bool has_own_wire() const { return wire_.has_value(); }

  // What is reduced.
  void* data() const { return wire_.has_value() ? wire_.get() : memory_.get(); }
  ElementType wire_type() const { return wire_type_; }
  std::uint64_t wire_bytes() const { return plan_.count * element_bytes(wire_type_); }

  // The tensor's gradient to what is reduced; zeros instead; and the result back, times `factor`.
  void take(const Slice& slice, const Tensor& tensor) const;
  void clear(const Slice& slice, const Tensor& tensor) const;
  void give(const Slice& slice, const Tensor& tensor, float factor) const;

 private:
  std::byte* wire_place(const Slice& slice) const;
  std::byte* gradient_place(const Slice& slice, const Tensor& tensor) const;

  Bucket plan_;
  ElementType wire_type_ = ElementType::float32;
  SharedMemory
      memory_;         // in the gradients' type; none if all are the caller's and the wire differs
  SharedMemory wire_;  // none if it is `memory_`
};

}  // namespace gyre::gradsync
