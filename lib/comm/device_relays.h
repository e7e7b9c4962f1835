// DeviceRelays: a communicator's links to GPUs that its own does not reach: memory of the host in
// place of the peers', and the relays (lib/exec/device_relay.h) that carry messages between these.
// The communicator's thread opens them; the process's DeviceProgress drives them.
#pragma once

#include "lib/comm/links.h"
#include "lib/exec/cuda_device.h"
#include "lib/exec/device_relay.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace gyre::comm {

class DeviceProgress;

class DeviceRelays {
 public:
  DeviceRelays(Links& links, std::shared_ptr<const exec::CudaDevice> device,
               const exec::DeviceShape& shape, DeviceProgress& progress)
      : links_(links), device_(std::move(device)), shape_(shape), progress_(progress) {}
  ~DeviceRelays();

  using Key = std::pair<int, int>;  // peer, channel of the plan; -1: sends and receives
  // The pieces of a link as kernels reach them: the own one of `bytes`, and the mirror behind it.
  Result<std::shared_ptr<std::byte>> allocate(const Key& key, std::uint64_t bytes);
  // The letter that lets the peer's relay connect; what its letter lets this one do.
  Result<bootstrap::Letter> offer(const Key& key);
  Status take(const Key& key, const bootstrap::Letter& letter);
  // Whether all that were taken are joined; or what one of them failed of. Any thread.
  Result<bool> are_ready() const;
  // What one of them failed of; once. Any thread.
  Status take_error();
  // Whether kernels run, as far as is known: their words are then looked at often. Any thread.
  void expect(bool busy);
  bool is_busy() const { return busy_.load(std::memory_order_relaxed); }

  // No kernel runs any more. Ships what they have told, and leaves each peer in peace; false if
  // that took longer, or has failed.
  bool leave(std::int64_t most_ns);

  // The thread of DeviceProgress.
  void advance(bool& moved);
  bool arm(WaitSet& set);
  void disarm();

 private:
  struct Relayed {
    exec::DeviceShape shape;
    std::shared_ptr<exec::PinnedBlock> memory;
    std::unique_ptr<transport::Connection> receive;  // until the peer's letter comes
    std::unique_ptr<exec::DeviceRelay> relay;        // from then on
  };
  transport::FifoShape fifo_shape() const { return exec::DeviceRelay::fifo_shape(shape_); }

  Links& links_;
  const std::shared_ptr<const exec::CudaDevice> device_;
  const exec::DeviceShape shape_;
  DeviceProgress& progress_;
  std::atomic<bool> busy_{false};
  mutable std::mutex mutex_;  // of what follows
  std::map<Key, Relayed> relayed_;
  Status error_;
  bool told_error_ = false;
};

}  // namespace gyre::comm
