// DeviceRelays: a communicator's links to GPUs that its own does not reach: host memory in place of
// the peers', and the relays (lib/cuda/device_relay.h) that carry messages between these. The rings
// lie in the GPU's memory if the NICs of the link may have them there and are near. The
// communicator's thread opens them; the process's RelayProgress drives them. They belong to the
// communicator and to its executor, which graphs keep alive. So a replay finds them in service when
// the communicator has ended. They leave their peers when nothing can launch any more.
#pragma once

#include "lib/cuda/cuda_executor.h"
#include "lib/cuda/device_relay.h"
#include "lib/device/nic_memory.h"
#include "lib/device/relay_progress.h"
#include "lib/links/links.h"
#include "lib/links/planned_ports.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace gyre::comm {

class DeviceRelays final : public Driven, public std::enable_shared_from_this<DeviceRelays> {
 public:
  // Why a port ("mlx5_0:1") may not have the GPU's memory; empty: it may.
  using WhyFar = std::function<std::string(std::string_view port)>;
  DeviceRelays(Links& links, std::shared_ptr<const exec::CudaDevice> device,
               const exec::DeviceShape& shape, RelayProgress& progress,
               std::shared_ptr<transport::LastingMemory> lasting, WhyFar why_nic_is_far,
               std::int64_t liveness_ns)
      : links_(links),
        device_(std::move(device)),
        shape_(shape),
        progress_(progress),
        lasting_(std::move(lasting)),
        why_nic_is_far_(std::move(why_nic_is_far)),
        liveness_ns_(liveness_ns) {}
  ~DeviceRelays() override;

  using Key = std::pair<int, int>;  // peer, channel of the plan; -1: sends and receives
  // Before the first link is opened: the ports that links on the channel of rings take. Others,
  // and all if there is no plan, leave the choice to the transport.
  void follow(PortsByPeer ports) { ports_ = std::move(ports); }
  // The memory of a link, of so many channels, and its end that receives. Whoever has kernels that
  // use the memory keeps the result.
  Result<std::shared_ptr<void>> prepare(const Key& key, std::uint32_t channels);
  // As kernels reach it, once it was taken.
  exec::DeviceLink link(const Key& key) const;
  // The message that lets the peer's relay connect; what its message lets this one do.
  control::MessageBytes offer(const Key& key) const;
  Status take(const Key& key, const control::MessageBytes& message);
  // Whether all that were taken are joined; or what one of them failed of. Any thread.
  Result<bool> are_ready() const;
  // What one of them failed of; once. Any thread.
  Status take_error();
  // Whether kernels run, as far as is known: their words are then looked at often. Any thread.
  void expect(bool busy);
  bool is_busy() const override {
    return busy_.load(std::memory_order_relaxed) || replays_.load(std::memory_order_relaxed) > 0;
  }
  // The executor has them from now on: it is told of replays, and stopped when nobody else would.
  void belong_to(exec::CudaExecutor& executor);
  // The communicator has ended. Where it had failed, so do its graphs, and peers see it at once.
  void leave_after_communicator(bool in_peace);

  void advance(bool& moved) override;
  bool arm(WaitSet& set) override;
  void disarm() override;
  bool have_left() const override;

 private:
  class ReplayWaker;  // what the executor has
  PlannedPorts ports_of(const Key& key) const;
  bool is_any_open() const;
  void retire();
  Status find_missed();
  Status find_ended();
  Status find_silent(std::int64_t now_ns);
  // Of both ends: this rank's, and the mirror of the peer's behind it.
  struct RelayMemory {
    std::unique_ptr<exec::PinnedBlock> words, rings;
    std::unique_ptr<NicMemory> gpu_rings;       // in place of `rings`
    std::unique_ptr<exec::PinnedBlock> mirror;  // the mirror's rings, if they cannot be there
  };
  struct RelayedLink {
    exec::DeviceShape shape;
    std::shared_ptr<RelayMemory> memory;
    transport::LastingBuffer lasting, lasting_mirror;  // of the rings: NICs may have keys of them
    // By the wires: rings of the GPU, and the mirror's part of them.
    std::shared_ptr<const void> held, held_mirror;
    control::MessageBytes offered;
    std::unique_ptr<transport::Connection> receive;  // until the peer's message comes
    std::unique_ptr<exec::DeviceRelay> relay;        // from then on
    FileDescriptor process;  // the peer's, when no communicator hears of its end any more
    // What a kernel here showed last that waits for the peer, which has left; and for how long.
    std::uint64_t missed = 0;
    std::int64_t missed_since_ns = 0;
  };
  // GPUDirect RDMA; an error says why not.
  Status put_on_gpu(const Key& key, RelayedLink& relayed) const;
  Status put_on_host(const Key& key, RelayedLink& relayed) const;
  Status place_mirror(const Key& key, RelayedLink& relayed, transport::Carrier* wire) const;
  static exec::DeviceLink link_of(const RelayedLink& relayed, bool for_kernels);
  transport::FifoShape fifo_shape() const { return exec::DeviceRelay::fifo_shape(shape_); }

  Links& links_;
  const std::shared_ptr<const exec::CudaDevice> device_;
  const exec::DeviceShape shape_;
  RelayProgress& progress_;
  const std::shared_ptr<transport::LastingMemory> lasting_;
  const WhyFar why_nic_is_far_;
  const std::int64_t liveness_ns_;
  PortsByPeer ports_;  // the communicator's thread's
  std::atomic<bool> busy_{false};
  std::atomic<int> replays_{0};             // that run
  mutable std::mutex mutex_;                // of what follows
  exec::CudaExecutor* executor_ = nullptr;  // null: it has gone
  bool is_alone_ = false;                   // the communicator has ended
  std::int64_t looked_ns_ = 0;              // for processes that have ended
  std::int64_t asked_ns_ = 0;               // whether hosts are silent
  std::int64_t gone_since_ns_ = 0;          // the executor, too
  std::map<Key, RelayedLink> relayed_;
  Status error_;
  bool told_error_ = false;
};

}  // namespace gyre::comm
