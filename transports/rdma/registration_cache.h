// RegistrationCache: keys by which NICs reach memory of callers. Registering pins pages, which
// takes longer than sending them, so keys are kept for the calls that come: by address range, for
// the devices that needed them, up to a number of ranges and bytes. The range that was not used for
// longest goes first, and never one that a call holds. Only lasting memory is kept, and its keys go
// before the memory does. Where a device refuses, nothing fails: the caller copies. The connections
// of a transport share one. Any thread.
#pragma once

#include "lib/transport/lasting_memory.h"
#include "transports/rdma/device.h"

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gyre::transport {

// One range with its keys.
class Registration {
 public:
  // `of_gpu`: the buffer that the range lies in; null: memory of the host.
  Registration(const MemoryRange& range, std::shared_ptr<const GpuBuffer> of_gpu)
      : range_(range), of_gpu_(std::move(of_gpu)) {}

  const MemoryRange& range() const { return range_; }
  // See GpuBuffer.
  bool needs_flush() const { return of_gpu_ != nullptr && of_gpu_->needs_flush; }
  bool is_of_gpu() const { return of_gpu_ != nullptr; }
  // Null: the device does not know the range.
  const ibv_mr* on(const RdmaDevice& device) const;
  // 0, or the errno of the device's refusal.
  int add(const std::shared_ptr<RdmaDevice>& device);

 private:
  struct DeviceKey {
    std::shared_ptr<RdmaDevice> device;  // outlives the key
    loaded::VerbsMemory memory;
  };
  const MemoryRange range_;
  const std::shared_ptr<const GpuBuffer> of_gpu_;
  std::vector<DeviceKey> keys_;
};

class RegistrationCache final : private MemoryWatcher {
 public:
  using NicList = std::vector<std::shared_ptr<RdmaDevice>>;
  struct CacheLimits {
    std::size_t count = 256;
    std::uint64_t bytes = std::uint64_t{16} << 30;
  };

  explicit RegistrationCache(std::shared_ptr<LastingMemory> lasting)
      : RegistrationCache(std::move(lasting), CacheLimits{}) {}
  RegistrationCache(std::shared_ptr<LastingMemory> lasting, const CacheLimits& limits);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // The range's keys on all these devices, which stay while the caller keeps this. Null if the
  // memory does not last, a device refuses, or what others hold leaves no room; `why` then.
  std::shared_ptr<const Registration> hold(const void* memory, std::uint64_t bytes,
                                           const NicList& devices, std::string* why = nullptr);

 private:
  struct CachedRange {
    std::shared_ptr<Registration> registration;
    std::uint64_t used = 0;
    std::weak_ptr<Registration> let_go;  // in place of the first: what a call holds to its end
    bool is_held() const { return registration.use_count() > 1; }
  };
  bool forget(const MemoryRange& range) override;
  bool make_room(std::uint64_t bytes);
  bool drop_oldest();
  Status add_devices(Registration& registration, const NicList& devices);
  std::shared_ptr<const Registration> refuse(const MemoryRange& range);

  const std::shared_ptr<LastingMemory> lasting_;
  const CacheLimits limits_;
  std::mutex mutex_;  // of what follows
  std::list<CachedRange> ranges_;
  std::list<CachedRange> let_go_;  // forgotten while calls held them
  std::uint64_t bytes_ = 0;        // of them
  std::uint64_t uses_ = 0;
  std::vector<MemoryRange> refused_;  // not asked for again until memory is given back
  bool has_told_ = false;             // that a device refused
};

}  // namespace gyre::transport
