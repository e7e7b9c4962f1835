// The C functions for memory that peers can reach. Threads of one process reach all of each other's
// memory. Other processes map only memory that comes from here.
#include "lib/api/arguments.h"
#include "lib/api/c_api.h"
#include "lib/comm/device_scope.h"

#include <fmt/core.h>

using namespace gyre;
using namespace gyre::comm;

namespace {

Status allocate(void** ptr, size_t size, int device) {
  if (size == 0) return {};
  if (size > 1ULL << 46)
    return invalid_argument(fmt::format("size {} is more than any memory", size));
  if (device == GYRE_DEVICE_HOST) {
    GYRE_ASSIGN(*ptr, process().regions.allocate(size));
    return {};
  }
  GYRE_ASSIGN(auto on, process().cuda_device(device));
  GYRE_ASSIGN(*ptr, process().device_memory.allocate(std::move(on), size));
  return {};
}

}  // namespace

gyreResult_t gyreMemAlloc(void** ptr, size_t size) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return invalid_argument("ptr is NULL");
    *ptr = nullptr;
    return allocate(ptr, size, size > 0 ? process().default_device() : GYRE_DEVICE_HOST);
  });
}

gyreResult_t gyreMemAllocOn(void** ptr, size_t size, int device) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return invalid_argument("ptr is NULL");
    *ptr = nullptr;
    return allocate(ptr, size, device);
  });
}

gyreResult_t gyreMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr || process().device_memory.release(ptr)) return {};
    return process().regions.release(ptr);
  });
}

gyreResult_t gyreCommRegister(gyreComm_t comm, void* buff, size_t size, void** handle) {
  return guarded(comm, [&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    if (handle == nullptr) return invalid_argument("handle is NULL");
    if (size == 0) return invalid_argument("size is 0");
    const DeviceScope scope(*pin);
    GYRE_TRY(check_buffer(*pin, "buff", buff, size));
    GYRE_ASSIGN(const std::uint64_t made, pin->backend().register_buffer(buff, size));
    *handle = reinterpret_cast<void*>(made);
    return {};
  });
}

gyreResult_t gyreCommDeregister(gyreComm_t comm, void* handle) {
  return guarded(comm, [&]() -> Status {
    GYRE_ASSIGN(auto pin, find_communicator(comm));
    return pin->backend().deregister_buffer(reinterpret_cast<std::uintptr_t>(handle));
  });
}
