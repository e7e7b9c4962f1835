// Checks which device a caller's pointer belongs to. A host communicator checks only in a process
// that uses CUDA. A CUDA communicator checks at each call, so that a mistake is an error and not a
// fault of a kernel.
#pragma once

#include "lib/cuda/cuda_device.h"
#include "lib/cuda/cuda_stream.h"

#include <cstdint>
#include <string_view>

namespace gyre::comm {

// For a host communicator: it is no memory of a device.
Status check_host_memory(const loaded::CudaDriver& driver, std::string_view name,
                         const void* buffer, std::uint64_t bytes);
// Whether the driver may move it to other pages, of which nobody is told.
Result<bool> is_managed(const loaded::CudaDriver& driver, const void* buffer);
// For a communicator on `device`, whose context is current: its kernels can use all of it. Where it
// lies; of no bytes, nothing is asked.
Result<loaded::CudaPointer> check_device_memory(const exec::CudaDevice& device,
                                                std::string_view name, const void* buffer,
                                                std::uint64_t bytes);
// The same of a stream: what it is, if calls can go there.
Result<exec::StreamState> check_device_stream(const exec::CudaDevice& device, const void* stream);

}  // namespace gyre::comm
