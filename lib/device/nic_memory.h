// NicMemory: memory of a GPU that NICs may read and write where it lies (GPUDirect RDMA). The
// driver exports it as a dmabuf, or a module of the kernel (nvidia_peermem) lets libibverbs take it
// by its address. Whether a NIC takes it shows when it is registered.
#pragma once

#include "lib/cuda/cuda_device.h"
#include "lib/transport/lasting_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace gyre::comm {

// What the driver says of a device.
struct NicAccess {
  bool by_dmabuf = false, by_address = false;
  bool needs_flush = true;  // see GpuBuffer
};
NicAccess find_nic_access(const exec::CudaDevice& device);

class NicMemory {
 public:
  // An error if the device has none, or has no room.
  static Result<std::unique_ptr<NicMemory>> make(
      const std::shared_ptr<const exec::CudaDevice>& device, std::uint64_t bytes,
      std::string_view purpose);

  std::byte* begin() const { return buffer_->range.data; }
  const std::shared_ptr<const transport::GpuBuffer>& buffer() const { return buffer_; }

 private:
  NicMemory() = default;
  std::shared_ptr<exec::DeviceBlock> block_;
  std::shared_ptr<const transport::GpuBuffer> buffer_;
};

}  // namespace gyre::comm
