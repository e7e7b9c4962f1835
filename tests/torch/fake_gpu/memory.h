// Memory of the fake's devices for PyTorch. As in c10/cuda's allocator, allocation and release are
// ordered on the stream that is current at the allocation. A use after the release, or before the
// allocation, finds overwritten data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

namespace fake_gpu {

c10::Allocator& allocator();

// Element by element, in the order of the current stream of `to`'s device: both are of one type and
// size, and on devices.
void copy_on_stream(const at::Tensor& to, const at::Tensor& from);

}  // namespace fake_gpu
