#include "lib/transport/lasting_memory.h"

#include "lib/transport/pinned_pages.h"

#include <algorithm>

namespace gyre::transport {

bool LastingMemory::covers(const void* memory, std::uint64_t bytes) const {
  if (regions_.find(memory, bytes).region != region_staged) return true;
  // It may be getting other pages at this moment.
  if (regions_.is_withdrawn(memory, bytes)) return false;
  const std::lock_guard lock(mutex_);
  const bool is_known = std::ranges::any_of(
      buffers_, [&](const auto& buffer) { return buffer.second.holds(memory, bytes); });
  // Unlike a region's, its pages are private.
  return is_known && forks_copy_pinned_pages();
}

std::uint64_t LastingMemory::add(const MemoryRange& buffer) {
  const std::lock_guard lock(mutex_);
  buffers_[++added_] = buffer;
  return added_;
}

bool LastingMemory::remove(std::uint64_t number) {
  MemoryRange buffer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(number);
    if (found == buffers_.end()) return false;
    buffer = found->second;
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
