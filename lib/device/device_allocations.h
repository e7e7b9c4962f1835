// DeviceAllocations: the device memory that gyreMemAlloc gave. It is physical memory that other
// processes can map, if the driver offers that; else the driver's ordinary memory, which is not
// lent.
#pragma once

#include "lib/cuda/cuda_device.h"
#include "transports/p2p/virtual_memory.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace gyre::comm {

struct DeviceAllocation {
  std::shared_ptr<const exec::CudaDevice> device;  // goes last
  std::shared_ptr<exec::DeviceBlock> ordinary;     // null: it is shareable
  std::shared_ptr<p2p::VirtualMemory> shareable;   // null: it is ordinary

  std::byte* begin() const { return shareable ? shareable->begin() : ordinary->begin(); }
  std::uint64_t bytes() const { return shareable ? shareable->bytes() : ordinary->bytes(); }
};

// Any thread.
class DeviceAllocations {
 public:
  // Zeroed.
  Result<void*> allocate(std::shared_ptr<const exec::CudaDevice> device, std::uint64_t bytes);
  // False if it does not begin here.
  bool release(const void* memory);
  // Null if they lie in none.
  std::shared_ptr<const DeviceAllocation> find(const void* memory, std::uint64_t bytes) const;
  // Changes when anything was given or taken back.
  std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  void clear();

 private:
  void note_change() { changes_.fetch_add(1, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> changes_{0};
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<const DeviceAllocation>> all_;  // by where they begin
};

}  // namespace gyre::comm
