// DeviceRegions: user memory between ranks of a CUDA communicator in different processes: the
// memory that this rank lends, and the memory of others that it has opened. Calls only ask for
// places. The watch (device_watch.h) does all else, so no call waits for a peer or for the driver.
#pragma once

#include "lib/device/lent_regions.h"
#include "lib/device/opened_regions.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace gyre::comm {

class DeviceRegions {
 public:
  // `peers`: the ranks of other processes. What is passed by reference outlives `close`.
  static Result<std::shared_ptr<DeviceRegions>> create(int rank, const std::vector<int>& peers,
                                                       control::Membership& membership,
                                                       trust::TicketBook& tickets,
                                                       const DeviceAllocations& allocations,
                                                       exec::CudaExecutor& executor);
  // Of device memory, for so many peers.
  static std::uint64_t device_bytes(std::size_t peers);

  // Null for ranks of this process.
  const cuda::DeviceRegion* table(int peer) const { return opened_->table(peer); }
  // Any thread: where the buffer lies, if it can be lent now; if not yet, soon.
  cuda::DevicePlace find(const void* memory, std::uint64_t bytes) {
    return lent_.find(memory, bytes);
  }
  // As LentRegions has them.
  Result<std::shared_ptr<RegisteredMemory>> enlist(const void* memory, std::uint64_t bytes) {
    return lent_.enlist(memory, bytes);
  }
  void delist(RegisteredMemory& memory) { lent_.delist(memory); }
  Departure departure(RegisteredMemory& memory) { return lent_.departure(memory); }
  Status check(std::string_view name, const void* buffer, const loaded::CudaPointer& where) {
    return lent_.check(name, buffer, where);
  }
  // While it stays the same, find answers the same.
  std::uint64_t changes() const { return lent_.changes(); }
  // The watch's. True while something is to be looked at again soon.
  bool tend();
  // Nothing is tended after it returns. Peers let go of what they have opened, unless a graph here
  // may lend it once more.
  void close();

 private:
  DeviceRegions(int rank, const std::vector<int>& peers, control::Membership& membership,
                trust::TicketBook& tickets, const DeviceAllocations& allocations,
                exec::CudaExecutor& executor, std::unique_ptr<OpenedRegions> opened)
      : rank_(rank),
        peers_(peers),
        membership_(membership),
        executor_(executor),
        opened_(std::move(opened)),
        lent_(rank, peers, membership, tickets, allocations, executor) {}
  void read_messages();
  void answer(int peer, const RegionMessage& message);

  const int rank_;
  const std::vector<int> peers_;
  control::Membership& membership_;
  exec::CudaExecutor& executor_;
  std::mutex tending_;  // of opened_'s and lent_'s parts for one thread, and what follows
  const std::unique_ptr<OpenedRegions> opened_;
  LentRegions lent_;
  bool closed_ = false, any_read_ = false;
  std::uint32_t read_ = 0;  // messages that had changed the membership until then
};

}  // namespace gyre::comm
