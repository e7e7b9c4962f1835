#include "transports/p2p/virtual_memory.h"

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

namespace gyre::p2p {

namespace cu = loaded::cu;
using loaded::CurrentContext;

loaded::CuMemoryKind VirtualMemory::kind() const {
  loaded::CuMemoryKind kind;
  kind.handles = cu::handle_file_descriptor;
  kind.place.device = owner_.device;
  return kind;
}

Result<bool> VirtualMemory::is_there(const MemoryOwner& owner) {
  loaded::CuDevice device = 0;
  GYRE_TRY(owner.driver.check(owner.driver.device_get(&device, owner.device), "cuDeviceGet"));
  for (const int which : {cu::virtual_memory, cu::file_descriptor_handles}) {
    int has = 0;
    // A driver that does not know the attribute has none of it.
    if (owner.driver.device_attribute(&has, which, device) != cu::success || has == 0) return false;
  }
  return true;
}

Result<std::shared_ptr<VirtualMemory>> VirtualMemory::make(const MemoryOwner& owner,
                                                           std::uint64_t bytes) {
  std::shared_ptr<VirtualMemory> made(new VirtualMemory(owner));
  const CurrentContext scope(owner.driver, owner.context);
  const auto still = loaded::await_rest(owner.driver);
  GYRE_TRY(made->create(bytes));
  GYRE_TRY(made->map());
  GYRE_TRY(made->give_access());
  made->give_others_access();
  return made;
}

Result<std::shared_ptr<VirtualMemory>> VirtualMemory::import(const MemoryOwner& owner,
                                                             const FileDescriptor& file,
                                                             std::uint64_t bytes) {
  std::shared_ptr<VirtualMemory> made(new VirtualMemory(owner));
  const CurrentContext scope(owner.driver, owner.context);
  void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
  GYRE_TRY(owner.driver.check(
      owner.driver.memory_import(&made->memory_, handle, cu::handle_file_descriptor),
      fmt::format("cuMemImportFromShareableHandle of {} bytes", bytes)));
  made->has_memory_ = true;
  made->bytes_ = bytes;
  const auto still = loaded::await_rest(owner.driver);
  GYRE_TRY(made->map());
  GYRE_TRY(made->give_access());
  return made;
}

Status VirtualMemory::create(std::uint64_t bytes) {
  const loaded::CuMemoryKind kind = this->kind();
  std::size_t granule = 0;
  GYRE_TRY(owner_.driver.check(
      owner_.driver.memory_granularity(&granule, &kind, cu::granularity_recommended),
      fmt::format("cuMemGetAllocationGranularity of device {}", owner_.device)));
  if (granule == 0) return internal_error("the driver gives granules of 0 bytes");
  bytes_ = divide_up(bytes, granule) * granule;
  GYRE_TRY(owner_.driver.check(
      owner_.driver.memory_create(&memory_, bytes_, &kind, 0),
      fmt::format("cuMemCreate of {} bytes of device {}", bytes_, owner_.device)));
  has_memory_ = true;
  return {};
}

Status VirtualMemory::map() {
  GYRE_TRY(owner_.driver.check(owner_.driver.addresses_reserve(&begin_, bytes_, 0, 0, 0),
                               fmt::format("cuMemAddressReserve of {} bytes", bytes_)));
  GYRE_TRY(owner_.driver.check(owner_.driver.memory_map(begin_, bytes_, 0, memory_, 0),
                               fmt::format("cuMemMap of {} bytes", bytes_)));
  mapped_ = true;
  return {};
}

Status VirtualMemory::give_access() {
  loaded::CuMemoryAccess access;
  access.place.device = owner_.device;
  return owner_.driver.check(
      owner_.driver.memory_set_access(begin_, bytes_, &access, 1),
      fmt::format("cuMemSetAccess of {} bytes for device {}", bytes_, owner_.device));
}

// One that cannot be given it is none that reaches it: the ways between ranks find that out too.
void VirtualMemory::give_others_access() {
  const loaded::CudaDriver& driver = owner_.driver;
  int devices = 0;
  loaded::CuDevice own = 0;
  if (driver.device_count(&devices) != cu::success ||
      driver.device_get(&own, owner_.device) != cu::success)
    return;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    loaded::CuDevice other = 0;
    int can = 0;
    if (ordinal == owner_.device || driver.device_get(&other, ordinal) != cu::success ||
        driver.device_can_access_peer(&can, other, own) != cu::success || can == 0)
      continue;
    loaded::CuMemoryAccess access;
    access.place.device = ordinal;
    const Status given = driver.check(driver.memory_set_access(begin_, bytes_, &access, 1),
                                      fmt::format("cuMemSetAccess for device {}", ordinal));
    is_everybodys_ &= given.ok();
    if (!given.ok())
      log_info(Subsystem::alloc, "{} bytes of device {}: {}", bytes_, owner_.device,
               given.message());
  }
}

Result<FileDescriptor> VirtualMemory::export_file() const {
  const CurrentContext scope(owner_.driver, owner_.context);
  int file = -1;
  GYRE_TRY(owner_.driver.check(
      owner_.driver.memory_export(&file, memory_, cu::handle_file_descriptor, 0),
      fmt::format("cuMemExportToShareableHandle of {} bytes", bytes_)));
  return FileDescriptor(file);
}

VirtualMemory::~VirtualMemory() {
  if (begin_ == 0 && !has_memory_) return;
  loaded::once_still(owner_.driver, [owner = owner_, begin = begin_, bytes = bytes_,
                                     memory = memory_, mapped = mapped_, has = has_memory_] {
    const CurrentContext scope(owner.driver, owner.context);
    if (mapped) (void)owner.driver.memory_unmap(begin, bytes);
    if (begin != 0) (void)owner.driver.addresses_free(begin, bytes);
    if (has) (void)owner.driver.memory_release(memory);
  });
}

}  // namespace gyre::p2p
