#include "lib/device/nic_memory.h"

#include "lib/base/units.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

namespace gyre::comm {

namespace cu = loaded::cu;

namespace {

// Of a GPU's memory as the bus has it: a NIC gets whole pages of it (GPUDirect RDMA, Design
// Considerations). Nothing else lies in ours.
constexpr std::uint64_t gpu_page_bytes = 64 << 10;

int attribute(const exec::CudaDevice& device, int which) {
  loaded::CuDevice on = 0;
  int value = 0;
  const bool is_known = device.driver().device_get(&on, device.ordinal()) == cu::success &&
                        device.driver().device_attribute(&value, which, on) == cu::success;
  return is_known ? value : 0;
}

Result<FileDescriptor> export_dmabuf(const exec::CudaDevice& device, const MemoryRange& range) {
  const loaded::CurrentContext scope(device.driver(), device.owner());
  int file = -1;
  GYRE_TRY(device.driver().check(
      device.driver().range_handle(&file, reinterpret_cast<std::uintptr_t>(range.data), range.bytes,
                                   cu::range_dmabuf, 0),
      fmt::format("cuMemGetHandleForAddressRange of {} bytes of device {}", range.bytes,
                  device.ordinal())));
  return FileDescriptor(file);
}

}  // namespace

NicAccess find_nic_access(const exec::CudaDevice& device) {
  return {.by_dmabuf =
              device.driver().range_handle != nullptr && attribute(device, cu::exports_dmabuf) != 0,
          .by_address = attribute(device, cu::nics_reach_memory) != 0,
          .needs_flush = attribute(device, cu::nic_writes_ordering) < cu::ordered_for_owner};
}

Result<std::unique_ptr<NicMemory>> NicMemory::make(
    const std::shared_ptr<const exec::CudaDevice>& device, std::uint64_t bytes,
    std::string_view purpose) {
  const NicAccess access = find_nic_access(*device);
  if (!access.by_dmabuf && !access.by_address)
    return invalid_usage(fmt::format(
        "the driver says that NICs cannot reach the memory of device {}", device->ordinal()));
  std::unique_ptr<NicMemory> made(new NicMemory);
  const auto still = loaded::await_rest(device->driver());
  const std::uint64_t whole = round_up(bytes, gpu_page_bytes);
  GYRE_ASSIGN(made->block_, exec::DeviceBlock::make(device, whole + gpu_page_bytes, purpose));
  const auto place = reinterpret_cast<std::uintptr_t>(made->block_->begin());
  const auto buffer = std::make_shared<transport::GpuBuffer>();
  buffer->range = {made->block_->begin() + (round_up(place, gpu_page_bytes) - place),
                   static_cast<std::size_t>(whole)};
  buffer->needs_flush = access.needs_flush;
  if (access.by_dmabuf) {
    auto exported = export_dmabuf(*device, buffer->range);
    if (exported.ok())
      buffer->dmabuf = std::move(*exported);
    else if (!access.by_address)
      return std::move(exported).status();
  }
  made->buffer_ = buffer;
  return made;
}

}  // namespace gyre::comm
