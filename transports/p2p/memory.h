// GPU memory between processes of one host: exported by a message, imported from it. It is lent:
// the importer holds the exporter's lease while it has the memory open, and the exporter does not
// free it before that. CUDA requires this.
#pragma once

#include "lib/loaded/cuda.h"
#include "transports/p2p/lease.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::p2p {

// No GPU has more memory; sums of such numbers do not turn.
inline constexpr std::uint64_t max_gpu_bytes = 1ULL << 46;

// What the exporter writes. The importer knows its process from the roster.
struct IpcMemory {
  LeaseName lease;
  loaded::CuIpcHandle handle{};
  std::uint64_t allocation_bytes = 0;  // of what the handle names
  std::uint64_t offset = 0;            // in it
  std::uint64_t bytes = 0;
};
std::vector<std::uint8_t> encode(const IpcMemory& message);
// Nothing if it is malformed, or is of memory beyond its allocation.
std::optional<IpcMemory> decode_ipc_memory(std::span<const std::uint8_t> bytes);

// `memory` came from cuMemAlloc, or lies within what did.
Result<IpcMemory> export_memory(const loaded::CudaDriver& driver, const Lease& lease,
                                const std::byte* memory, std::uint64_t bytes);

class ImportedMemory {
 public:
  // For kernels of the device whose context `owner` is.
  static Result<std::shared_ptr<ImportedMemory>> open(const loaded::CudaDriver& driver,
                                                      loaded::CuContext owner,
                                                      std::uint32_t exporter_pid,
                                                      const IpcMemory& message);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  std::byte* begin() const { return reinterpret_cast<std::byte*>(opened_) + offset_; }

 private:
  ImportedMemory(const loaded::CudaDriver& driver, loaded::CuContext owner, LeaseBorrower borrowing)
      : borrower_(std::move(borrowing)), driver_(driver), owner_(owner) {}
  LeaseBorrower borrower_;  // let go of last
  const loaded::CudaDriver& driver_;
  const loaded::CuContext owner_;
  loaded::CuDevicePointer opened_ = 0;
  std::uint64_t offset_ = 0;
};

// Memory that was exported, and its lease: what has to stay when its owner goes.
struct LentMemory {
  std::optional<Lease> lease;
  std::vector<std::shared_ptr<std::byte>> memory;
  // Whether nobody uses it any more.
  bool is_over() { return !lease || lease->end(); }
};

}  // namespace gyre::p2p
