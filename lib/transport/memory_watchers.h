// MemoryWatchers: those who keep something about memory of this process, such as a NIC's key, and
// have to let go of it before that memory is another's. Any thread.
#pragma once

#include "lib/base/owned.h"

#include <mutex>
#include <vector>

namespace gyre::transport {

class MemoryWatcher {
 public:
  // The range is about to be unmapped, or to get other pages. On return nothing is kept of it, but
  // what a call uses at this moment. Whether there is such a call.
  virtual bool forget(const MemoryRange& range) = 0;

 protected:
  ~MemoryWatcher() = default;
};

class MemoryWatchers {
 public:
  void add(MemoryWatcher& watcher) {
    const std::lock_guard lock(mutex_);
    watchers_.push_back(&watcher);
  }
  // On return it is not told of anything any more.
  void remove(MemoryWatcher& watcher) {
    const std::lock_guard lock(mutex_);
    std::erase(watchers_, &watcher);
  }
  // Whether a call uses what is kept of it.
  bool tell(const MemoryRange& range) const {
    const std::lock_guard lock(mutex_);
    bool is_used = false;
    for (MemoryWatcher* const watcher : watchers_) is_used |= watcher->forget(range);
    return is_used;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<MemoryWatcher*> watchers_;
};

}  // namespace gyre::transport
