#include "transports/p2p/memory.h"

#include "lib/loaded/cuda_rest.h"
#include "lib/trust/wire.h"

#include <fmt/format.h>

namespace gyre::p2p {

namespace cu = loaded::cu;
using loaded::CurrentContext;

namespace {

constexpr std::uint32_t letter_version = 1;

bool is_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t whole) {
  return bytes > 0 && offset <= whole && bytes <= whole - offset;
}

}  // namespace

std::vector<std::uint8_t> encode(const MemoryLetter& letter) {
  trust::Writer writer;
  writer.put(letter_version);
  writer.put(letter.lease.descriptor);
  writer.put(letter.lease.inode);
  writer.put(letter.handle);
  writer.put(letter.allocation_bytes);
  writer.put(letter.offset);
  writer.put(letter.bytes);
  return writer.take();
}

std::optional<MemoryLetter> decode_memory_letter(std::span<const std::uint8_t> bytes) {
  trust::Reader reader(bytes);
  MemoryLetter letter;
  std::uint32_t version = 0;
  if (!reader.get(version) || version != letter_version || !reader.get(letter.lease.descriptor) ||
      !reader.get(letter.lease.inode) || !reader.get(letter.handle) ||
      !reader.get(letter.allocation_bytes) || !reader.get(letter.offset) ||
      !reader.get(letter.bytes) || !reader.rest().empty())
    return std::nullopt;
  if (letter.allocation_bytes > gpu_bytes_most || letter.lease.descriptor > INT32_MAX ||
      !is_within(letter.offset, letter.bytes, letter.allocation_bytes))
    return std::nullopt;
  return letter;
}

Result<MemoryLetter> export_memory(const loaded::CudaDriver& driver, const Lease& lease,
                                   const std::byte* memory, std::uint64_t bytes) {
  GYRE_ASSIGN(const loaded::CudaPointer whole, find_pointer(driver, memory));
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (!whole.known || !is_within(address - whole.range_begin, bytes, whole.range_bytes))
    return internal_error("memory for a peer does not lie in one allocation");
  MemoryLetter letter;
  letter.lease = lease.name();
  letter.allocation_bytes = whole.range_bytes;
  letter.offset = address - whole.range_begin;
  letter.bytes = bytes;
  GYRE_TRY(driver.check(driver.ipc_export(&letter.handle, whole.range_begin),
                        fmt::format("cuIpcGetMemHandle of {} bytes", whole.range_bytes)));
  return letter;
}

Result<std::shared_ptr<ImportedMemory>> ImportedMemory::open(const loaded::CudaDriver& driver,
                                                             loaded::CuContext owner,
                                                             std::uint32_t exporter_pid,
                                                             const MemoryLetter& letter) {
  GYRE_ASSIGN(Borrowing borrowing, Borrowing::begin(exporter_pid, letter.lease));
  std::shared_ptr<ImportedMemory> made(new ImportedMemory(driver, owner, std::move(borrowing)));
  const CurrentContext scope(driver, owner);
  // The driver counts how often it has one allocation open, so that each letter has its own.
  const auto import = [&] {
    return driver.ipc_import(&made->opened_, letter.handle, cu::ipc_lazy_peer_access);
  };
  GYRE_TRY(driver.check(loaded::when_still(driver, import),
                        fmt::format("cuIpcOpenMemHandle of {} bytes", letter.allocation_bytes)));
  made->offset_ = letter.offset;
  // The exporter's word on how much there is, held against the driver's where that says it.
  GYRE_ASSIGN(const loaded::CudaPointer seen, find_pointer(driver, made->begin()));
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(made->begin()) - seen.range_begin;
  if (seen.range_bytes > 0 && !is_within(at, letter.bytes, seen.range_bytes))
    return Status(Code::RemoteError,
                  fmt::format("it has exported {} bytes of GPU memory, and speaks of {} at {}",
                              seen.range_bytes, letter.bytes, letter.offset));
  return std::shared_ptr<ImportedMemory>(std::move(made));
}

ImportedMemory::~ImportedMemory() {
  if (opened_ == 0) return;
  const auto held = std::make_shared<Borrowing>(std::move(borrowing_));
  loaded::once_still(driver_, [&driver = driver_, owner = owner_, opened = opened_, held] {
    const CurrentContext scope(driver, owner);
    (void)driver.ipc_close(opened);
  });
}

}  // namespace gyre::p2p
