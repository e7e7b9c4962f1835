#include "lib/transport/lasting_memory.h"

#include "lib/transport/pinned_pages.h"

#include <algorithm>
#include <utility>

namespace gyre::transport {

bool LastingMemory::covers(const void* memory, std::uint64_t bytes) const {
  if (regions_.find(memory, bytes).region != region_staged) return true;
  // It may be getting other pages at this moment.
  if (regions_.is_withdrawn(memory, bytes)) return false;
  const std::lock_guard lock(mutex_);
  // Unlike a region's, the pages of the host's buffers are private.
  return std::ranges::any_of(buffers_, [&](const auto& buffer) {
    const KnownBuffer& known = buffer.second;
    return known.range.holds(memory, bytes) &&
           (known.of_gpu != nullptr || forks_copy_pinned_pages());
  });
}

std::uint64_t LastingMemory::add(const MemoryRange& buffer) {
  const std::lock_guard lock(mutex_);
  buffers_[++added_] = {buffer, nullptr};
  return added_;
}

std::uint64_t LastingMemory::add_gpu(std::shared_ptr<const GpuBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  const MemoryRange range = buffer->range;
  buffers_[++added_] = {range, std::move(buffer)};
  return added_;
}

std::shared_ptr<const GpuBuffer> LastingMemory::find_gpu(const void* memory,
                                                         std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, known] : buffers_)
    if (known.of_gpu != nullptr && known.range.holds(memory, bytes)) return known.of_gpu;
  return nullptr;
}

bool LastingMemory::remove(std::uint64_t number) {
  MemoryRange buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(number);
    if (found == buffers_.end()) return false;
    buffer = found->second.range;
    buffers_.erase(found);
  }
  (void)watchers_.tell(buffer);
  return true;
}

void LastingMemory::watch(MemoryWatcher& watcher) {
  watchers_.add(watcher);
  regions_.watchers().add(watcher);
}

void LastingMemory::unwatch(MemoryWatcher& watcher) {
  watchers_.remove(watcher);
  regions_.watchers().remove(watcher);
}

}  // namespace gyre::transport
