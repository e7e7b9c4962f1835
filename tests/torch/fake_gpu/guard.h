// PyTorch's view of the fake driver's devices (tests/support/fake_cuda/fake_gpu.h), registered as
// CUDA's in a PyTorch without CUDA: devices, streams and events, like c10/cuda on a GPU. A stream's
// number is its address; the default one's is 0.
#pragma once

#include "tests/support/fake_cuda/fake_gpu.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace fake_gpu {

inline gyreStream_t handle_of(const c10::Stream& stream) {
  return reinterpret_cast<gyreStream_t>(stream.id());
}
// A device without a number is the current one.
int index_of(c10::Device device);
// The calling thread's.
c10::Stream current_stream(int device);
// As after a start in this process; 0 before.
int device_count();
void start(int devices);

}  // namespace fake_gpu
