// LastingMemory: the memory of this process that stays where it is until its owner says otherwise:
// regions of gyreMemAlloc, until gyreMemFree; and what one communicator was told of by
// gyreCommRegister, until gyreCommDeregister. Only of such memory may a NIC's key be kept. Memory
// of malloc may be unmapped and mapped anew at any time, and nobody tells: the key would lead to
// pages that are no longer the program's, and calls would give wrong results. Where a fork could
// do the same to private pages (pinned_pages.h), regions alone count.
#pragma once

#include "lib/base/owned.h"
#include "lib/transport/memory_watchers.h"
#include "lib/transport/region.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace gyre::transport {

// A buffer in the memory of a GPU, and how NICs get at it.
struct GpuBuffer {
  MemoryRange range;
  // By this descriptor of a dmabuf, whose first byte is the buffer's; or by its address, as a
  // module of the kernel lets them (nvidia_peermem).
  FileDescriptor dmabuf;
  // The GPU may see a word in the host's memory before it sees what a NIC wrote here earlier,
  // unless the NIC has read here meanwhile.
  bool needs_flush = true;
};

// Any thread. Connections may outlive the communicator, and keep it: a graph's relays do.
class LastingMemory {
 public:
  // Outlives it: the process's.
  explicit LastingMemory(RegionTable& regions) : regions_(regions) {}

  bool covers(const void* memory, std::uint64_t bytes) const;
  // A buffer that its owner keeps until `remove` of the number, which is never 0.
  std::uint64_t add(const MemoryRange& buffer);
  // The same in the memory of a GPU.
  std::uint64_t add_gpu(std::shared_ptr<const GpuBuffer> buffer);
  // The one in which that lies; null: none.
  std::shared_ptr<const GpuBuffer> find_gpu(const void* memory, std::uint64_t bytes) const;
  // False if there is no such number.
  bool remove(std::uint64_t number);

  void watch(MemoryWatcher& watcher);
  void unwatch(MemoryWatcher& watcher);

 private:
  RegionTable& regions_;
  MemoryWatchers watchers_;  // of the buffers
  mutable std::mutex mutex_;
  struct KnownBuffer {
    MemoryRange range;
    std::shared_ptr<const GpuBuffer> of_gpu;  // null: it is the host's
  };
  std::map<std::uint64_t, KnownBuffer> buffers_;  // by number
  std::uint64_t added_ = 0;
};

// A buffer in it, for as long as this lives.
struct LastingBufferTraits {
  struct Handle {
    std::shared_ptr<LastingMemory> memory;
    std::uint64_t number = 0;
    friend bool operator==(const Handle&, const Handle&) = default;
  };
  static Handle none() { return {}; }
  static void close(const Handle& handle) { (void)handle.memory->remove(handle.number); }
};
using LastingBuffer = Owned<LastingBufferTraits>;

}  // namespace gyre::transport
