// Memory of the fake's devices as PyTorch's: taken and given back in the order of the stream that
// is current when it is taken, as c10/cuda's allocator does it. What is used after it was given
// back, or before it was taken, is found overwritten.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

namespace fake_gpu {

c10::Allocator& allocator();

// Element by element, in the order of the current stream of `to`'s device: both are of one type and
// size, and on devices.
void copy_on_stream(const at::Tensor& to, const at::Tensor& from);

}  // namespace fake_gpu
