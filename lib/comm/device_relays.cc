#include "lib/comm/device_relays.h"

#include "lib/base/log.h"
#include "lib/comm/device_progress.h"
#include "lib/comm/resumable.h"

#include <fmt/format.h>

namespace gyre::comm {
namespace {

const SystemClock clock;

// Beyond the links of plans on the host, and those of sends and receives.
constexpr int first_channel = 1 << 17;

Links::Key link_of(const DeviceRelays::Key& key) {
  return {key.first, first_channel + 1 + key.second};
}

}  // namespace

DeviceRelays::~DeviceRelays() {
  if (!relayed_.empty()) progress_.remove(*this);
}

Result<std::shared_ptr<std::byte>> DeviceRelays::allocate(const Key& key, std::uint64_t bytes) {
  GYRE_ASSIGN(auto made, exec::PinnedBlock::make(device_, 2 * bytes,
                                                 fmt::format("the relay to rank {}", key.first)));
  const std::shared_ptr<exec::PinnedBlock> memory = std::move(made);
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = relayed_.empty();
    Relayed& relayed = relayed_[key];
    relayed.memory = memory;
    relayed.shape = shape_;
    relayed.shape.channels = static_cast<std::uint32_t>(bytes / shape_.channel_bytes());
  }
  if (is_first) progress_.add(*this);
  return std::shared_ptr<std::byte>(memory, memory->seen(memory->begin()));
}

Result<bootstrap::Letter> DeviceRelays::offer(const Key& key) {
  GYRE_ASSIGN(Links::Listened listened, links_.listen(link_of(key), fifo_shape()));
  const std::lock_guard lock(mutex_);
  relayed_[key].receive = std::move(listened.connection);
  return encode(listened.letter);
}

Status DeviceRelays::take(const Key& key, const bootstrap::Letter& letter) {
  GYRE_ASSIGN(auto send, links_.connect(link_of(key), fifo_shape(), letter));
  {
    const std::lock_guard lock(mutex_);
    Relayed& relayed = relayed_[key];
    std::byte* const own = relayed.memory->begin();
    relayed.relay = std::make_unique<exec::DeviceRelay>(
        key.first, relayed.shape, exec::DeviceLink{own, own + relayed.shape.link_bytes(), true},
        std::move(send), std::move(relayed.receive));
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

void DeviceRelays::advance(bool& moved) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, relayed] : relayed_) {
    if (relayed.relay == nullptr) continue;
    Status status = relayed.relay->advance(moved);
    if (!status.ok() && error_.ok()) error_ = std::move(status);
  }
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

bool DeviceRelays::leave(std::int64_t most_ns) {
  const auto each = [this](auto&& holds) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, relayed] : relayed_)
      if (relayed.relay != nullptr && relayed.relay->ready() && !holds(*relayed.relay))
        return false;
    return true;
  };
  (void)each([](exec::DeviceRelay& relay) { return relay.leave(), true; });
  progress_.wake();
  const auto have_left = [&] {
    return each([](const exec::DeviceRelay& relay) { return relay.has_left(); });
  };
  const std::int64_t until_ns = clock.now_ns() + most_ns;
  std::atomic<std::uint32_t> never{0};
  Until ended(never,
              [&] { return have_left() || !are_ready().ok() || clock.now_ns() >= until_ns; });
  Resumable* const all[] = {&ended};
  run(all, clock, {.spins = 0, .yields = 16});
  return have_left();
}

}  // namespace gyre::comm
