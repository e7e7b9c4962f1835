// LentRegions: memory of this rank's GPU that kernels of other processes may reach: allocations of
// gyreMemAlloc that calls have used, and memory that the caller registered. Each is offered to all
// peers in other processes. It is lent once all of them have opened it; until then, calls copy
// through slots. Calls only look, and note new memory. The watch offers it, reads the answers and
// withdraws it.
#pragma once

#include "kernels/cuda/launch.h"
#include "lib/control/control.h"
#include "lib/cuda/cuda_executor.h"
#include "lib/device/device_allocations.h"
#include "lib/device/region_message.h"
#include "lib/device/registered_memory.h"
#include "lib/links/message_keys.h"
#include "lib/transport/endpoint.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace gyre::comm {

// Of messages about regions.
inline constexpr std::uint64_t region_key = message_key(MessageTopic::region);

class LentRegions {
 public:
  // What is passed by reference outlives it.
  LentRegions(int rank, std::vector<int> peers, control::Membership& membership,
              trust::TicketBook& tickets, const DeviceAllocations& allocations,
              exec::CudaExecutor& executor);

  // Any thread, as far as `tend`.
  // Where the buffer lies, if it can be lent now.
  cuda::DevicePlace find(const void* memory, std::uint64_t bytes);
  // The caller registers it. Null: there is nothing to deregister, as it is gyreMemAlloc's, or is
  // copied all the same.
  Result<std::shared_ptr<RegisteredMemory>> enlist(const void* memory, std::uint64_t bytes);
  // One handle less; with the last one, calls copy it again.
  void delist(RegisteredMemory& memory);
  Departure departure(RegisteredMemory& memory);
  // An error if what was registered there is not what lies there now.
  Status check(std::string_view name, const void* buffer, const loaded::CudaPointer& where);
  // While it stays the same, find answers the same.
  std::uint64_t changes() const {
    return changes_.load(std::memory_order_relaxed) + allocations_.changes();
  }

  // One thread at a time from here on. True while something is to be looked at again soon.
  bool tend();
  void hear(int from, const RegionMessage& message);
  void withdraw_all();

 private:
  struct LentRegion {
    std::weak_ptr<const DeviceAllocation> memory;  // of gyreMemAlloc
    std::shared_ptr<RegisteredMemory> registered;  // or of the caller
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;  // 0: not offered yet
    std::set<int> missing;     // peers that have not opened it
    bool refused = false;
    bool told = false;  // that it is not lent yet
    std::vector<transport::IssuedTicket> tickets;

    bool is_over() const { return registered ? registered->handles == 0 : memory.expired(); }
    const char* whose() const { return registered ? "registered memory" : "gyreMemAlloc"; }
  };
  using Regions = std::map<std::uintptr_t, LentRegion>;  // by where they begin
  // To be offered.
  struct NewRegion {
    std::uintptr_t begin = 0;
    std::shared_ptr<const DeviceAllocation> memory;
    std::shared_ptr<RegisteredMemory> registered;
  };

  Regions::iterator covering(std::uintptr_t address);
  bool has_room();
  cuda::DevicePlace place(Regions::value_type& known, std::uintptr_t address, std::uint64_t bytes);
  std::vector<LentRegion> take_ended(bool all);
  void withdraw(std::vector<LentRegion> ended);
  void offer(const NewRegion& fresh);
  Status offer_file(LentRegion& region, const DeviceAllocation& memory);
  Status offer_export(LentRegion& region, RegisteredMemory& memory);
  void hear_of_ended(int from, const RegionMessage& message);
  std::uint64_t take_number();

  const int rank_;
  const std::vector<int> peers_;
  control::Membership& membership_;
  trust::TicketBook& tickets_;
  const DeviceAllocations& allocations_;
  exec::CudaExecutor& executor_;
  std::set<std::uint64_t> slots_;          // taken ones
  std::uint64_t numbers_ = 0;              // given so far
  std::atomic<std::uint64_t> changes_{0};  // of what is lent

  std::mutex mutex_;  // of what follows
  Regions regions_;
  std::map<std::uint64_t, std::weak_ptr<RegisteredMemory>> ended_;  // by number
  bool awaits_rest_ = false;  // something ended that a kernel here may still lend
  bool told_of_others_ = false, told_of_many_ = false;
};

}  // namespace gyre::comm
