#include "lib/device/device_memory.h"

#include "lib/base/owned.h"

#include <fmt/core.h>

#include <fcntl.h>
#include <unistd.h>

namespace gyre::comm {
namespace {

// Whether this process can read there: the kernel tries. That something is mapped says less, as the
// driver keeps the addresses of memory that was freed, for nobody to touch.
bool is_readable(const void* pointer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return true;
  const FileDescriptor from(ends[0]), to(ends[1]);
  return write(to.get(), pointer, 1) == 1;
}

Status refuse_unknown(const exec::CudaDevice& device, std::string_view name, const void* buffer) {
  if (is_readable(buffer))
    return invalid_argument(fmt::format(
        "{} = {} is host memory that CUDA does not know, and this communicator works on "
        "device {}: allocate it with cudaMalloc (or cudaMallocHost), or make the "
        "communicator with config.device = GYRE_DEVICE_HOST",
        name, buffer, device.ordinal()));
  return invalid_argument(
      fmt::format("{} = {} is no memory: it was freed, or never allocated", name, buffer));
}

}  // namespace

Status check_host_memory(const loaded::CudaDriver& driver, std::string_view name,
                         const void* buffer, std::uint64_t bytes) {
  if (bytes == 0) return {};
  GYRE_ASSIGN(const loaded::CudaPointer found, find_pointer(driver, buffer));
  if (!found.known || !found.on_device || found.managed) return {};
  return invalid_argument(fmt::format(
      "{} = {} is memory of CUDA device {}, and this communicator works on host memory: "
      "make it with config.device = {}, or pass host memory",
      name, buffer, found.device, found.device));
}

Result<bool> is_managed(const loaded::CudaDriver& driver, const void* buffer) {
  GYRE_ASSIGN(const loaded::CudaPointer found, find_pointer(driver, buffer));
  return found.known && found.managed;
}

Result<loaded::CudaPointer> check_device_memory(const exec::CudaDevice& device,
                                                std::string_view name, const void* buffer,
                                                std::uint64_t bytes) {
  if (bytes == 0) return loaded::CudaPointer();
  const loaded::CudaDriver& driver = device.driver();
  GYRE_ASSIGN(const loaded::CudaPointer found, find_pointer(driver, buffer));
  if (!found.known) return refuse_unknown(device, name, buffer);
  if (found.on_device && !found.managed && found.device != device.ordinal())
    return invalid_argument(
        fmt::format("{} = {} is memory of CUDA device {}, and this communicator works on device {}",
                    name, buffer, found.device, device.ordinal()));
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  const std::uint64_t there = found.range_begin + found.range_bytes - address;
  if (found.range_bytes == 0 || bytes <= there) return found;
  // What lies behind may be another mapping of one reserved range.
  GYRE_ASSIGN(const loaded::CudaPointer last,
              find_pointer(driver, static_cast<const std::byte*>(buffer) + bytes - 1));
  if (last.known) return found;
  return invalid_argument(
      fmt::format("{} = {} has {} bytes, and the call needs {}: the allocation ends there", name,
                  buffer, there, bytes));
}

Result<exec::StreamState> check_device_stream(const exec::CudaDevice& device, const void* stream) {
  const loaded::CudaDriver& driver = device.driver();
  auto* const handle = static_cast<loaded::CuStream>(const_cast<void*>(stream));
  loaded::CuContext owner = device.owner();
  if (handle != nullptr)
    GYRE_TRY(driver.check(driver.stream_owner(handle, &owner),
                          fmt::format("cuStreamGetCtx of the stream {}", stream)));
  GYRE_ASSIGN(const exec::StreamState state, exec::StreamState::ask(driver, handle));
  if (state.spoiled)
    return invalid_usage(
        "the capture that the stream is part of has failed (a call that cannot be captured, or "
        "streams that were not joined): end it, and begin anew");
  if (owner == device.owner()) return state;
  return invalid_argument(fmt::format(
      "the stream {} belongs to another device, or to a context that is not the primary one of "
      "device {}: create it after cudaSetDevice({})",
      stream, device.ordinal(), device.ordinal()));
}

}  // namespace gyre::comm
