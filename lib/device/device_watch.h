// DeviceWatch: the one thread per process that observes running kernels. It passes aborts to them,
// and turns their failures into errors. It sleeps while none runs. It offers and opens the memory
// that is lent between processes (device_regions.h). It keeps memory that ended communicators have
// lent until no other process uses it.
#pragma once

#include "lib/base/service_thread.h"
#include "lib/base/status.h"
#include "transports/p2p/memory.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre::comm {

class RelayProgress;
class DeviceRegions;
class PeerPools;

// What is watched: a communicator on a device.
class Watched {
 public:
  virtual ~Watched() = default;
  // On the watch's thread. Whether a kernel of it still runs; passes on what failed.
  virtual bool look() = 0;
  // What it lends and has opened, tended outside the lock that calls take; null where it has none.
  virtual std::shared_ptr<DeviceRegions> regions() const = 0;
  virtual std::shared_ptr<PeerPools> pools() const = 0;
};

class DeviceWatch {
 public:
  explicit DeviceWatch(RelayProgress& progress) : progress_(progress) {}
  ~DeviceWatch();
  // The process ends: lets go of what others have left, and stops, unless its thread is busy for
  // longer.
  void end(std::int64_t max_ns);
  Status add(Watched& one);
  // After it returns, it is not looked at.
  void remove(Watched& one);
  // A kernel was launched. Cheap while the thread is awake.
  void launched();
  // Lets go of it, soon, where the driver may be called; any thread may give it.
  void reclaim(std::shared_ptr<void> gone);
  // Frees it as soon as no other process uses it.
  void keep(p2p::LentMemory lent);
  // Lets go of both on this thread, and waits for other processes, `max_ns` at most; what they use
  // even then stays until the process ends. So for relays that are leaving.
  void let_go(std::int64_t max_ns);

 private:
  void watch();
  bool look_at_all();
  bool tend_regions();
  void free_unused();
  Status begin();  // mutex_ is held

  RelayProgress& progress_;
  std::mutex freeing_;  // taken before mutex_
  std::mutex mutex_;    // of watched_, buried_, kept_, abandoned_, stop_, thread_
  std::vector<Watched*> watched_;
  std::vector<std::shared_ptr<void>> buried_;
  std::vector<p2p::LentMemory> kept_;
  // Peers may use it until this process ends. Freed under their kernels, it would be somebody
  // else's: so nobody frees it, as the process's watch is never destroyed.
  std::vector<p2p::LentMemory> abandoned_;
  // The thread's, of those it has looked at.
  std::vector<std::shared_ptr<DeviceRegions>> tended_;
  std::vector<std::shared_ptr<PeerPools>> tended_pools_;
  bool stop_ = false;
  std::atomic<bool> asleep_{false};
  std::atomic<std::uint32_t> called_{0};  // futex word
  ServiceThread thread_;
};

}  // namespace gyre::comm
