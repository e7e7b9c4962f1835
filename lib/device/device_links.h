// DeviceLinks: the memory through which this rank's kernels and a peer's send to each other. Each
// rank brings its end on its own GPU. Threads of one process hand theirs over by a one-time ticket,
// so that both hold the memory that both use. Processes export theirs to each other
// (transports/p2p). The route to each peer was decided for all pairs at init. Opening a plan is
// resumable and ends when all ranks have opened it. So no rank takes device memory for it while
// others' kernels already wait.
#pragma once

#include "lib/base/wait.h"
#include "lib/control/control.h"
#include "lib/cuda/cuda_executor.h"
#include "lib/device/device_relays.h"
#include "lib/device/peer_pools.h"
#include "lib/transport/endpoint.h"
#include "transports/p2p/gpu_route.h"
#include "transports/p2p/memory.h"

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gyre::comm {

class DeviceLinks {
 public:
  // `ways`: to each rank; `relays`: for those that are relayed.
  DeviceLinks(int rank, std::vector<p2p::PairRoute> ways, std::shared_ptr<DeviceRelays> relays,
              control::Membership& membership, trust::TicketBook& tickets,
              exec::CudaExecutor& executor)
      : rank_(rank),
        ways_(std::move(ways)),
        membership_(membership),
        tickets_(tickets),
        executor_(executor),
        relays_(std::move(relays)) {}

  // Begins to open what the plans of a call's channels need and is not there.
  Status open(std::span<const plan::Plan> by_channel);
  // Goes on; true once all ranks have opened it.
  Result<bool> advance(bool& moved);
  // Of which nothing is lent between processes, unless who asks knows of regions.
  exec::DeviceLink link(plan::Link link) const;

  // Links for sends and receives, of as many channels; open when the peer has begun to open its
  // own, since nobody else has to know of it.
  Status open_pair(int peer, std::uint32_t channels);
  Status advance_pairs(bool& moved);
  bool pair_is_open(int peer) const;
  exec::DeviceLink pair(int peer) const { return link({peer, pair_channel}); }

  Blocked blocked() const;

  // First of all: the memory of peers in other processes. The watch does it.
  Status open_pools(PeerPools::Siblings siblings);
  const std::shared_ptr<PeerPools>& pools() const { return pools_; }
  bool are_pools_open() const { return pools_->are_open(); }  // those of all siblings

  // Null if no link is relayed.
  DeviceRelays* relays() const { return relays_.get(); }
  // What peers in other processes may still use when this rank is gone.
  p2p::LentMemory take_lent() { return std::exchange(lent_, {}); }

 private:
  using Key = std::pair<int, int>;         // peer, channel of the plan
  static constexpr int pair_channel = -1;  // of none
  // What a rank brings. Who uses it in the same process holds it too.
  struct End {
    std::shared_ptr<std::byte> memory;  // of a relayed link: nothing
    std::shared_ptr<const exec::CudaDevice> device;
    std::uint64_t bytes = 0;
  };
  struct JointLink {
    std::shared_ptr<End> own;
    std::byte* peers = nullptr;  // where this rank's kernels reach it; the executor keeps it there
    bool is_open = false;
    transport::IssuedTicket ticket;
    std::int64_t until_ns = 0;  // so long it waits for kernels of this process to end
  };
  // A peer's end, once its message is there.
  struct PeersEnd {
    std::byte* memory = nullptr;
    std::shared_ptr<void> holds;
  };
  int size() const { return static_cast<int>(ways_.size()); }
  const p2p::PairRoute& way(int peer) const { return ways_[static_cast<std::size_t>(peer)]; }
  bool is_relayed(int peer) const { return way(peer).way == p2p::GpuRoute::relay; }
  std::uint32_t process_id_of(int peer) const;
  Status open_links(const plan::Plan& plan);
  Status open_one(const Key& key, std::uint32_t channels);
  // By the way to the peer: the message that offers it this rank's end, and what its message
  // brings.
  Result<control::MessageBytes> offer(const Key& key, JointLink& joint);
  Result<PeersEnd> take(const Key& key, const JointLink& joint,
                        const control::MessageBytes& message);
  Result<control::MessageBytes> offer_pointer(JointLink& joint);
  Result<PeersEnd> take_pointer(const JointLink& joint, const control::MessageBytes& message);
  Result<control::MessageBytes> offer_export(JointLink& joint);
  Result<PeersEnd> take_import(int peer, const JointLink& joint,
                               const control::MessageBytes& message);
  Result<PeersEnd> take_relay(const Key& key, const control::MessageBytes& message);
  Result<bool> are_relays_ready() const;
  bool meet(bool& moved);

  const int rank_;
  const std::vector<p2p::PairRoute> ways_;
  control::Membership& membership_;
  trust::TicketBook& tickets_;
  exec::CudaExecutor& executor_;
  std::shared_ptr<DeviceRelays> relays_;
  std::shared_ptr<PeerPools> pools_;
  std::map<Key, JointLink> joints_;
  std::vector<Key> opening_;
  p2p::LentMemory lent_;
  std::uint64_t plans_opened_ = 0;
  int next_to_meet_ = 0;  // rank 0 hears of all, then tells all; the others tell and hear it
  bool told_ = false;
};

}  // namespace gyre::comm
