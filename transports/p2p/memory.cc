#include "transports/p2p/memory.h"

#include "lib/loaded/cuda_rest.h"
#include "lib/trust/wire.h"

#include <fmt/core.h>

namespace gyre::p2p {

namespace cu = loaded::cu;
using loaded::CurrentContext;

namespace {

constexpr std::uint32_t message_version = 1;

bool is_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t whole) {
  return bytes > 0 && offset <= whole && bytes <= whole - offset;
}

}  // namespace

std::vector<std::uint8_t> encode(const IpcMemory& message) {
  trust::Writer writer;
  writer.put(message_version);
  writer.put(message.lease.descriptor);
  writer.put(message.lease.inode);
  writer.put(message.handle);
  writer.put(message.allocation_bytes);
  writer.put(message.offset);
  writer.put(message.bytes);
  return writer.take();
}

std::optional<IpcMemory> decode_ipc_memory(std::span<const std::uint8_t> bytes) {
  trust::Reader reader(bytes);
  IpcMemory message;
  std::uint32_t version = 0;
  if (!reader.get(version) || version != message_version || !reader.get(message.lease.descriptor) ||
      !reader.get(message.lease.inode) || !reader.get(message.handle) ||
      !reader.get(message.allocation_bytes) || !reader.get(message.offset) ||
      !reader.get(message.bytes) || !reader.rest().empty())
    return std::nullopt;
  if (message.allocation_bytes > max_gpu_bytes || message.lease.descriptor > INT32_MAX ||
      !is_within(message.offset, message.bytes, message.allocation_bytes))
    return std::nullopt;
  return message;
}

Result<IpcMemory> export_memory(const loaded::CudaDriver& driver, const Lease& lease,
                                const std::byte* memory, std::uint64_t bytes) {
  GYRE_ASSIGN(const loaded::CudaPointer whole, find_pointer(driver, memory));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (!whole.known || !is_within(address - whole.range_begin, bytes, whole.range_bytes))
    return internal_error("memory for a peer does not lie in one allocation");
  IpcMemory message;
  message.lease = lease.name();
  message.allocation_bytes = whole.range_bytes;
  message.offset = address - whole.range_begin;
  message.bytes = bytes;
  GYRE_TRY(driver.check(driver.ipc_export(&message.handle, whole.range_begin),
                        fmt::format("cuIpcGetMemHandle of {} bytes", whole.range_bytes)));
  return message;
}

Result<std::shared_ptr<ImportedMemory>> ImportedMemory::open(const loaded::CudaDriver& driver,
                                                             loaded::CuContext owner,
                                                             std::uint32_t exporter_pid,
                                                             const IpcMemory& message) {
  GYRE_ASSIGN(LeaseBorrower borrowing, LeaseBorrower::begin(exporter_pid, message.lease));
  std::shared_ptr<ImportedMemory> made(new ImportedMemory(driver, owner, std::move(borrowing)));
  const CurrentContext scope(driver, owner);
  // The driver counts how often it has one allocation open, so that each message has its own.
  const auto import = [&] {
    return driver.ipc_import(&made->opened_, message.handle, cu::ipc_lazy_peer_access);
  };
  GYRE_TRY(driver.check(loaded::when_still(driver, import),
                        fmt::format("cuIpcOpenMemHandle of {} bytes", message.allocation_bytes)));
  made->offset_ = message.offset;
  // The exporter's word on how much there is, held against the driver's where that says it.
  GYRE_ASSIGN(const loaded::CudaPointer seen, find_pointer(driver, made->begin()));
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(made->begin()) - seen.range_begin;
  if (seen.range_bytes > 0 && !is_within(at, message.bytes, seen.range_bytes))
    return Status(Code::RemoteError,
                  fmt::format("it has exported {} bytes of GPU memory, and names {} at {}",
                              seen.range_bytes, message.bytes, message.offset));
  return std::shared_ptr<ImportedMemory>(std::move(made));
}

ImportedMemory::~ImportedMemory() {
  if (opened_ == 0) return;
  const auto held = std::make_shared<LeaseBorrower>(std::move(borrower_));
  loaded::once_still(driver_, [&driver = driver_, owner = owner_, opened = opened_, held] {
    const CurrentContext scope(driver, owner);
    (void)driver.ipc_close(opened);
  });
}

}  // namespace gyre::p2p
