#include "transports/rdma/registration_cache.h"

#include "lib/base/log.h"

#include <algorithm>

namespace gyre::transport {
namespace {

constexpr std::size_t max_refused = 64;

}  // namespace

const ibv_mr* Registration::on(const RdmaDevice& device) const {
  for (const DeviceKey& key : keys_)
    if (key.device.get() == &device) return key.memory.get().object;
  return nullptr;
}

// Both ends of a link lend: the NIC reads it here, and peers write it. A flush reads it as well.
int Registration::add(const std::shared_ptr<RdmaDevice>& device) {
  if (on(*device) != nullptr) return 0;
  loaded::VerbsMemory memory;
  constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const std::span<std::byte> range(range_.data, range_.bytes);
  const int why =
      of_gpu_ == nullptr
          ? device->try_to_register(range, access, memory)
          : device->try_to_register_gpu(range, *of_gpu_, access | IBV_ACCESS_REMOTE_READ, memory);
  if (why == 0) keys_.push_back({device, std::move(memory)});
  return why;
}

RegistrationCache::RegistrationCache(std::shared_ptr<LastingMemory> lasting,
                                     const CacheLimits& limits)
    : lasting_(std::move(lasting)), limits_(limits) {
  lasting_->watch(*this);
}

RegistrationCache::~RegistrationCache() { lasting_->unwatch(*this); }

std::shared_ptr<const Registration> RegistrationCache::hold(const void* memory, std::uint64_t bytes,
                                                            const NicList& devices,
                                                            std::string* why) {
  if (memory == nullptr || bytes == 0 || devices.empty()) return nullptr;
  const auto refuse_for = [&](const MemoryRange& range, const Status& status) {
    if (why != nullptr) *why = status.message();
    return refuse(range);
  };
  const MemoryRange range{static_cast<std::byte*>(const_cast<void*>(memory)),
                          static_cast<std::size_t>(bytes)};
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(refused_, range) != refused_.end()) return nullptr;
  const auto known = std::ranges::find_if(ranges_, [&](const CachedRange& one) {
    return one.registration->range().holds(memory, bytes);
  });
  if (known != ranges_.end()) {
    const std::shared_ptr<Registration> held = known->registration;
    known->used = ++uses_;
    const Status added = add_devices(*held, devices);
    return added.ok() ? held : refuse_for(range, added);
  }
  if (!lasting_->covers(memory, bytes) || !make_room(bytes)) return nullptr;
  const auto made = std::make_shared<Registration>(range, lasting_->find_gpu(memory, bytes));
  if (const Status added = add_devices(*made, devices); !added.ok())
    return refuse_for(range, added);
  ranges_.push_back({made, ++uses_, {}});
  bytes_ += bytes;
  log_info(Subsystem::net, "NICs reach {} bytes at {} without copies from here on", bytes, memory);
  return made;
}

bool RegistrationCache::make_room(std::uint64_t bytes) {
  if (bytes > limits_.bytes) return false;
  while (ranges_.size() >= limits_.count || bytes_ > limits_.bytes - bytes)
    if (!drop_oldest()) return false;
  return true;
}

// False if all are held.
bool RegistrationCache::drop_oldest() {
  auto oldest = ranges_.end();
  for (auto one = ranges_.begin(); one != ranges_.end(); ++one)
    if (!one->is_held() && (oldest == ranges_.end() || one->used < oldest->used)) oldest = one;
  if (oldest == ranges_.end()) return false;
  bytes_ -= oldest->registration->range().bytes;
  ranges_.erase(oldest);
  return true;
}

// A limit on locked memory may be met by what nobody uses now.
Status RegistrationCache::add_devices(Registration& registration, const NicList& devices) {
  for (const std::shared_ptr<RdmaDevice>& device : devices) {
    int why = registration.add(device);
    while (is_memory_limit(why) && drop_oldest()) why = registration.add(device);
    if (why == 0) continue;
    Status failed = device->registering_failed(registration.range().bytes, why);
    // Whoever asks for a GPU's memory does without, and says so.
    if (!registration.is_of_gpu() && !std::exchange(has_told_, true))
      log_warn("calls copy memory that the NIC could reach: {}", failed.message());
    return failed;
  }
  return {};
}

// Null.
std::shared_ptr<const Registration> RegistrationCache::refuse(const MemoryRange& range) {
  if (refused_.size() == max_refused) refused_.erase(refused_.begin());
  refused_.push_back(range);
  return nullptr;
}

// What a call holds is asked for no more, but known until that call is over: a part of it may be
// forgotten later. It allocates nothing.
bool RegistrationCache::forget(const MemoryRange& range) {
  const std::lock_guard lock(mutex_);
  refused_.clear();
  for (auto next = ranges_.begin(); next != ranges_.end();) {
    const auto one = next++;
    if (!one->registration->range().meets(range)) continue;
    bytes_ -= one->registration->range().bytes;
    one->let_go = std::exchange(one->registration, nullptr);
    let_go_.splice(let_go_.end(), ranges_, one);
  }
  std::erase_if(let_go_, [](const CachedRange& one) { return one.let_go.expired(); });
  return std::ranges::any_of(let_go_, [&](const CachedRange& one) {
    const std::shared_ptr<Registration> held = one.let_go.lock();
    return held != nullptr && held->range().meets(range);
  });
}

}  // namespace gyre::transport
