#include "lib/device/device_relays.h"

#include "lib/base/log.h"
#include "lib/device/relay_progress.h"
#include "lib/transport/carrier.h"

#include <fmt/core.h>

#include <algorithm>
#include <poll.h>

namespace gyre::comm {
namespace {

// On which the plans of rings send (plan::one). Others send there as well, on the same links.
constexpr int ring_channel = 0;
// Beyond the links of plans on the host, and those of sends and receives.
constexpr int first_channel = 1 << 17;

Links::Key links_key(const DeviceRelays::Key& key) {
  return {key.first, first_channel + 1 + key.second};
}

std::string purpose(const DeviceRelays::Key& key) {
  return fmt::format("the relay to rank {}", key.first);
}

// Far longer than a kernel takes to see what has landed.
constexpr std::int64_t missed_ns = 100 * ns_per_ms;
// For processes that have ended.
constexpr std::int64_t looks_ns = 10 * ns_per_ms;
// For peers to answer a goodbye.
constexpr std::int64_t max_leave_ns = 2 * ns_per_s;

}  // namespace

class DeviceRelays::ReplayWaker final : public exec::ReplayWatch {
 public:
  explicit ReplayWaker(std::shared_ptr<DeviceRelays> relays) : relays_(std::move(relays)) {}
  ~ReplayWaker() override { relays_->retire(); }
  bool is_needed() const override { return relays_->is_any_open(); }
  // What the kernel tells wakes nobody.
  void begins() override {
    relays_->replays_.fetch_add(1, std::memory_order_relaxed);
    relays_->progress_.wake();
  }
  void ends() override { relays_->replays_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<DeviceRelays> relays_;
};

DeviceRelays::~DeviceRelays() {
  if (!relayed_.empty()) progress_.remove(*this);
}

Result<std::shared_ptr<void>> DeviceRelays::prepare(const Key& key, std::uint32_t channels) {
  GYRE_ASSIGN(Links::ReceivingEnd listened,
              links_.listen(links_key(key), fifo_shape(), ports_of(key).in));
  RelayedLink made;
  made.shape = shape_;
  made.shape.channels = channels;
  made.receive = std::move(listened.connection);
  made.offered = encode(listened.message);
  made.memory = std::make_shared<RelayMemory>();
  GYRE_ASSIGN(made.memory->words,
              exec::PinnedBlock::make(device_, 2 * made.shape.relay_words_bytes(), purpose(key)));
  const Status direct = put_on_gpu(key, made);
  if (!direct.ok()) {
    log_info(Subsystem::net, "channel {} with rank {}: no GPUDirect RDMA: {}", key.second,
             key.first, direct.message());
    GYRE_TRY(put_on_host(key, made));
  }
  std::shared_ptr<void> memory = made.memory;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = relayed_.empty();
    relayed_[key] = std::move(made);
  }
  if (is_first) GYRE_TRY(progress_.add(*this));
  return memory;
}

Status DeviceRelays::put_on_host(const Key& key, RelayedLink& relayed) const {
  const std::uint64_t bytes = 2 * relayed.shape.relay_rings_bytes();
  GYRE_ASSIGN(relayed.memory->rings, exec::PinnedBlock::make(device_, bytes, purpose(key)));
  relayed.lasting =
      transport::LastingBuffer({lasting_, lasting_->add({relayed.memory->rings->begin(), bytes})});
  return {};
}

// The wire that receives takes the rings of both ends, so that the one that sends finds them known.
Status DeviceRelays::put_on_gpu(const Key& key, RelayedLink& relayed) const {
  transport::Carrier* const wire = granting_carrier(*relayed.receive);
  if (wire == nullptr) return invalid_usage("its transport is not RDMA");
  std::string ports;
  for (const std::string& port : wire->ports()) {
    if (const std::string why = why_nic_is_far_(port); !why.empty()) return invalid_usage(why);
    ports += (ports.empty() ? "" : ", ") + port;
  }
  const std::uint64_t bytes = 2 * relayed.shape.relay_rings_bytes();
  GYRE_ASSIGN(std::unique_ptr<NicMemory> made, NicMemory::make(device_, bytes, purpose(key)));
  transport::LastingBuffer lasting({lasting_, lasting_->add_gpu(made->buffer())});
  relayed.held = wire->hold(made->begin(), bytes);
  if (relayed.held == nullptr)
    return Status(Code::SystemError,
                  fmt::format("a NIC does not take memory of device {} (it needs dmabufs in its "
                              "kernel, or nvidia_peermem): {}",
                              device_->ordinal(), wire->refusal()));
  log_info(Subsystem::net, "channel {} with rank {}: GPUDirect RDMA by {}, {}", key.second,
           key.first, ports,
           made->buffer()->needs_flush ? "flushed by reads" : "in order without a flush");
  relayed.memory->gpu_rings = std::move(made);
  relayed.lasting = std::move(lasting);
  return {};
}

// The wire that sends may use other ports than the one that receives.
Status DeviceRelays::place_mirror(const Key& key, RelayedLink& relayed,
                                  transport::Carrier* wire) const {
  RelayMemory& memory = *relayed.memory;
  if (memory.gpu_rings == nullptr) return {};
  const std::uint64_t bytes = relayed.shape.relay_rings_bytes();
  std::string why = wire != nullptr ? "" : "its transport is not RDMA";
  if (wire != nullptr)
    for (const std::string& port : wire->ports())
      if (why.empty()) why = why_nic_is_far_(port);
  if (why.empty()) {
    relayed.held_mirror = wire->hold(memory.gpu_rings->begin() + bytes, bytes);
    if (relayed.held_mirror != nullptr) return {};
    why = wire->refusal();
  }
  log_info(Subsystem::net, "channel {} with rank {}: no GPUDirect RDMA for what is sent: {}",
           key.second, key.first, why);
  GYRE_ASSIGN(memory.mirror, exec::PinnedBlock::make(device_, bytes, purpose(key)));
  relayed.lasting_mirror =
      transport::LastingBuffer({lasting_, lasting_->add({memory.mirror->begin(), bytes})});
  return {};
}

exec::DeviceLink DeviceRelays::link_of(const RelayedLink& relayed, bool for_kernels) {
  const auto at = [&](const exec::PinnedBlock& block, std::uint64_t offset) {
    return for_kernels ? block.seen(block.begin() + offset) : block.begin() + offset;
  };
  const RelayMemory& memory = *relayed.memory;
  const std::uint64_t rings_bytes = relayed.shape.relay_rings_bytes();
  exec::DeviceLink link{.own = at(*memory.words, 0),
                        .peers = at(*memory.words, relayed.shape.relay_words_bytes()),
                        .lends = false};
  const bool on_gpu = memory.gpu_rings != nullptr;
  link.own_rings = on_gpu ? memory.gpu_rings->begin() : at(*memory.rings, 0);
  link.peers_rings = memory.mirror != nullptr ? at(*memory.mirror, 0)
                     : on_gpu                 ? memory.gpu_rings->begin() + rings_bytes
                                              : at(*memory.rings, rings_bytes);
  return link;
}

exec::DeviceLink DeviceRelays::link(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return link_of(relayed_.at(key), true);
}

PlannedPorts DeviceRelays::ports_of(const Key& key) const {
  const auto found = ports_.find(key.first);
  return key.second == ring_channel && found != ports_.end() ? found->second : PlannedPorts();
}

control::MessageBytes DeviceRelays::offer(const Key& key) const {
  const std::lock_guard lock(mutex_);
  return relayed_.at(key).offered;
}

Status DeviceRelays::take(const Key& key, const control::MessageBytes& rank_message) {
  GYRE_ASSIGN(auto send,
              links_.connect(links_key(key), fifo_shape(), rank_message, ports_of(key).out));
  RelayedLink* relayed = nullptr;
  {
    const std::lock_guard lock(mutex_);
    relayed = &relayed_.at(key);
  }
  // Others look at the relay alone, and they are not to wait for the driver or for a NIC.
  GYRE_TRY(place_mirror(key, *relayed, granting_carrier(*send)));
  const bool on_gpu = relayed->memory->gpu_rings != nullptr;
  auto relay = std::make_unique<exec::DeviceRelay>(
      key.first, relayed->shape, link_of(*relayed, false), std::move(send),
      std::move(relayed->receive), 0,
      exec::RelayPlaces{on_gpu, on_gpu && relayed->memory->mirror == nullptr});
  {
    const std::lock_guard lock(mutex_);
    relayed->relay = std::move(relay);
  }
  progress_.wake();
  return {};
}

Result<bool> DeviceRelays::are_ready() const {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return error_;
  for (const auto& [key, relayed] : relayed_)
    if (relayed.relay != nullptr && !relayed.relay->ready()) return false;
  return true;
}

Status DeviceRelays::take_error() {
  const std::lock_guard lock(mutex_);
  return error_.ok() || std::exchange(told_error_, true) ? Status() : error_;
}

void DeviceRelays::expect(bool busy) {
  if (busy_.exchange(busy, std::memory_order_relaxed) != busy && busy) progress_.wake();
}

void DeviceRelays::belong_to(exec::CudaExecutor& executor) {
  {
    const std::lock_guard lock(mutex_);
    executor_ = &executor;
  }
  executor.watch_replays(std::make_unique<ReplayWaker>(shared_from_this()));
}

bool DeviceRelays::is_any_open() const {
  const std::lock_guard lock(mutex_);
  return !relayed_.empty();
}

void DeviceRelays::leave_after_communicator(bool in_peace) {
  const std::lock_guard lock(mutex_);
  is_alone_ = true;
  if (!in_peace) executor_->abort();
  for (auto& [key, relayed] : relayed_) {
    // One that has not joined has carried nothing, and would ask the communicator when it does.
    if (in_peace && relayed.relay != nullptr && relayed.relay->ready()) {
      relayed.process = links_.process_of(key.first);
      continue;
    }
    relayed.relay.reset();
    relayed.receive.reset();
  }
}

// The executor goes, and with it all who could launch. What its kernels have told is still shipped.
void DeviceRelays::retire() {
  bool is_any = false;
  {
    const std::lock_guard lock(mutex_);
    executor_ = nullptr;
    gone_since_ns_ = system_clock.now_ns();
    for (auto& [key, relayed] : relayed_) {
      if (relayed.relay == nullptr) continue;
      relayed.relay->leave();
      is_any = true;
    }
  }
  if (is_any) progress_.retire(shared_from_this());
}

bool DeviceRelays::have_left() const {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return true;
  const bool left = std::ranges::all_of(relayed_, [](const auto& entry) {
    const auto& relay = entry.second.relay;
    return relay == nullptr || !relay->ready() || relay->has_left();
  });
  if (left || system_clock.now_ns() - gone_since_ns_ < max_leave_ns) return left;
  log_warn("not all relays to other GPUs ended within 2 s");
  return true;
}

void DeviceRelays::advance(bool& moved) {
  const std::lock_guard lock(mutex_);
  const bool was_well = error_.ok();
  for (auto& [key, relayed] : relayed_) {
    if (relayed.relay == nullptr) continue;
    Status status = relayed.relay->advance(moved);
    if (!status.ok() && error_.ok()) error_ = std::move(status);
  }
  if (error_.ok() && is_alone_) error_ = find_ended();
  if (error_.ok() && executor_ != nullptr && is_busy()) error_ = find_missed();
  if (error_.ok() || !is_alone_ || executor_ == nullptr) return;
  executor_->abort();
  if (was_well)
    log_warn("graphs of a communicator that has ended do nothing from now on: {}",
             error_.message());
}

// Sockets tell of ends in order; shared memory does not.
Status DeviceRelays::find_ended() {
  const std::int64_t now_ns = system_clock.now_ns();
  if (now_ns - looked_ns_ < looks_ns) return {};
  looked_ns_ = now_ns;
  for (auto& [key, relayed] : relayed_) {
    pollfd ended{relayed.process.get(), POLLIN, 0};
    if (!relayed.process.has_value() || poll(&ended, 1, 0) <= 0) continue;
    relayed.process.reset();
    if (relayed.relay != nullptr && !relayed.relay->peer_has_left())
      return Status(Code::RemoteError, fmt::format("the process of rank {} has ended", key.first))
          .blame({key.first});
  }
  return find_silent(now_ns);
}

// A host that has crashed, or cannot be reached, says nothing.
Status DeviceRelays::find_silent(std::int64_t now_ns) {
  if (now_ns - asked_ns_ < liveness_ns_ / 8) return {};
  asked_ns_ = now_ns;
  for (auto& [key, relayed] : relayed_)
    if (relayed.relay != nullptr) GYRE_TRY(relayed.relay->look_at_peer(now_ns, liveness_ns_));
  return {};
}

// A kernel that waits for a peer who has left, and whose every word is here, waits for nothing. It
// shows that it waits again and again; what is old was shown by one that goes on.
Status DeviceRelays::find_missed() {
  for (auto& [key, relayed] : relayed_) {
    if (relayed.relay == nullptr || !relayed.relay->peer_has_left()) continue;
    const exec::CudaExecutor::KernelProgress now = executor_->waiting();
    if (now.waiting == 0 || now.peer != key.first || now.waiting == relayed.missed) continue;
    relayed.missed = now.waiting;
    const std::int64_t now_ns = system_clock.now_ns();
    if (relayed.missed_since_ns == 0) relayed.missed_since_ns = now_ns;
    if (now_ns - relayed.missed_since_ns < missed_ns) continue;
    return Status(Code::Mismatch, fmt::format("rank {} has left (its communicator and graphs are "
                                              "destroyed), and a kernel here waits for it",
                                              key.first))
        .blame({key.first});
  }
  return {};
}

bool DeviceRelays::arm(WaitSet& set) {
  const std::lock_guard lock(mutex_);
  bool may_sleep = true;
  for (auto& [key, relayed] : relayed_)
    if (relayed.relay != nullptr) may_sleep &= relayed.relay->arm(set);
  return may_sleep;
}

void DeviceRelays::disarm() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, relayed] : relayed_)
    if (relayed.relay != nullptr) relayed.relay->disarm();
}

}  // namespace gyre::comm
