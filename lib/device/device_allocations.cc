#include "lib/device/device_allocations.h"

#include "lib/base/log.h"
#include "lib/loaded/cuda_rest.h"

namespace gyre::comm {

Result<void*> DeviceAllocations::allocate(std::shared_ptr<const exec::CudaDevice> device,
                                          std::uint64_t bytes) {
  auto made = std::make_shared<DeviceAllocation>();
  const p2p::MemoryOwner owner{device->driver(), device->owner(), device->ordinal()};
  GYRE_ASSIGN(const bool is_shareable, p2p::VirtualMemory::is_there(owner));
  if (is_shareable) {
    GYRE_ASSIGN(made->shareable, p2p::VirtualMemory::make(owner, bytes));
  } else {
    log_info(Subsystem::alloc,
             "{} bytes of device {} for gyreMemAlloc come from cuMemAlloc, as {} has no virtual "
             "memory with file descriptors: calls between processes copy them through slots",
             bytes, device->ordinal(), device->name());
    GYRE_ASSIGN(made->ordinary, exec::DeviceBlock::make(device, bytes, "gyreMemAlloc"));
  }
  GYRE_TRY(device->zero(made->begin(), made->bytes()));
  made->device = std::move(device);
  void* const memory = made->begin();
  const std::lock_guard lock(mutex_);
  all_[reinterpret_cast<std::uintptr_t>(memory)] = std::move(made);
  note_change();
  return memory;
}

// The driver may wait while it frees: outside the lock.
bool DeviceAllocations::release(const void* memory) {
  std::shared_ptr<const DeviceAllocation> gone;
  std::unique_lock lock(mutex_);
  const auto found = all_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == all_.end()) return false;
  gone = std::move(found->second);
  all_.erase(found);
  note_change();
  lock.unlock();
  const auto device = gone->device;
  gone.reset();
  if (const auto& rest = device->driver().rest; rest != nullptr) rest->settle();
  return true;
}

std::shared_ptr<const DeviceAllocation> DeviceAllocations::find(const void* memory,
                                                                std::uint64_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto found = all_.upper_bound(address);
  if (found == all_.begin()) return nullptr;
  --found;
  const std::uint64_t offset = address - found->first, whole = found->second->bytes();
  return offset <= whole && bytes <= whole - offset ? found->second : nullptr;
}

void DeviceAllocations::clear() {
  const std::lock_guard lock(mutex_);
  all_.clear();
  note_change();
}

}  // namespace gyre::comm
