// PeerPools: the memory pools of peers in other processes, which contain their links. A
// communicator opens them whole when it begins, and only when no kernel of this process runs,
// because the driver waits for kernels. A rank's init ends only when all ranks of its process, its
// siblings, have opened theirs. Otherwise its next kernel would keep the siblings from opening, and
// might wait for their kernels. So later calls open nothing, unless peers' pools are used up.
#pragma once

#include "lib/control/control.h"
#include "lib/cuda/cuda_executor.h"
#include "lib/device/device_holdings.h"
#include "transports/p2p/memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gyre::comm {

class PeerPools {
 public:
  // Of this rank's process: whose claims say when all have opened theirs.
  struct Siblings {
    std::shared_ptr<DeviceHoldings::Claim> claim;
    std::uint32_t ranks = 1;
  };
  // The membership and the executor outlive it, or `close`.
  PeerPools(std::vector<int> peers, control::Membership& membership, exec::CudaExecutor& executor,
            Siblings siblings);
  // Offers this rank's to all of them.
  Status offer(p2p::LentMemory& lent);
  // The watch's: true while something is to come.
  bool tend();
  void close();

  // Any thread from here on. Whether all siblings have theirs, as far as they can be had.
  bool are_open() const;
  // Where kernels of this rank find it; null if it is in no pool that is open.
  std::byte* find(int peer, const p2p::IpcMemory& message) const;
  bool has(int peer) const;

 private:
  struct Pool {
    loaded::CuIpcHandle handle{};
    std::uint64_t bytes = 0;
    std::shared_ptr<p2p::ImportedMemory> memory;
  };
  void open(int peer, const control::MessageBytes& bytes);
  void end();

  control::Membership& membership_;
  exec::CudaExecutor& executor_;
  const Siblings siblings_;
  const std::int64_t until_ns_;
  std::mutex tending_;  // of coming_, closed_
  std::vector<int> coming_;
  bool closed_ = false;
  mutable std::mutex mutex_;  // of pools_
  std::map<int, Pool> pools_;
};

}  // namespace gyre::comm
