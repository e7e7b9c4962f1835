// Chooses the kernel that carries out a call, by protocol, type and operation. Host code. The same
// table holds device kernels where nvcc built them, and plain functions for the host's machine.
#pragma once

#include "kernels/cuda/launch.h"

namespace gyre::cuda {

enum class DeviceProtocol : std::uint8_t { simple, ll, ll128 };
inline constexpr int device_protocol_count = 3;

// For cudaLaunchKernel, where it is one.
using Kernel = void (*)(DeviceLaunch);

struct KernelRow {
  Kernel by_protocol[device_protocol_count];
};

// Null for a pair that does not exist: bitwise operations on floats.
Kernel find_kernel(DeviceProtocol protocol, ElementType type, ReduceOp op);

}  // namespace gyre::cuda
