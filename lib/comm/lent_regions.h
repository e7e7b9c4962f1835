// LentRegions: memory of this rank's GPU that kernels of other processes may reach: what
// gyreMemAlloc gave and calls have used, or the caller registered. Each is offered to all peers in
// other processes, and lent once all of them have opened it: until then, calls copy through slots.
// Calls only look and note what they meet; the watch offers, hears and takes back.
#pragma once

#include "kernels/cuda/launch.h"
#include "lib/bootstrap/control.h"
#include "lib/comm/device_allocations.h"
#include "lib/comm/region_letter.h"
#include "lib/transport/endpoint.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace gyre::comm {

// Of letters about regions.
inline constexpr std::uint64_t region_key = 6ULL << 56;

class LentRegions {
 public:
  // What is passed by reference outlives it.
  LentRegions(int rank, std::vector<int> peers, bootstrap::Membership& membership,
              trust::TicketBook& tickets, const DeviceAllocations& allocations,
              const exec::CudaDevice& device);

  // Any thread: where the buffer lies, if it can be lent now.
  cuda::DevicePlace find(const void* memory, std::uint64_t bytes);
  // While it stays the same, find answers the same.
  std::uint64_t changes() const {
    return changes_.load(std::memory_order_relaxed) + allocations_.changes();
  }

  // One thread at a time from here on.
  void tend();
  void hear(int from, const RegionLetter& letter);
  void withdraw_all();

 private:
  struct Region {
    std::weak_ptr<const DeviceAllocation> memory;
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;  // 0: not offered yet
    std::set<int> missing;     // peers that have not opened it
    bool refused = false;
    bool told = false;  // that it is not lent yet
    std::vector<transport::IssuedTicket> tickets;
  };
  using Regions = std::map<std::uintptr_t, Region>;  // by where they begin

  cuda::DevicePlace place(Regions::value_type& known, std::uintptr_t address, std::uint64_t bytes);
  std::vector<Region> take_ended(bool all);
  void withdraw(std::vector<Region> ended);
  void offer(std::uintptr_t begin, const DeviceAllocation& memory);
  Status offer_to_all(Region& region, const DeviceAllocation& memory);
  std::uint64_t take_number();

  const int rank_;
  const std::vector<int> peers_;
  bootstrap::Membership& membership_;
  trust::TicketBook& tickets_;
  const DeviceAllocations& allocations_;
  const exec::CudaDevice& device_;
  std::set<std::uint64_t> slots_;          // taken ones
  std::uint64_t numbers_ = 0;              // given so far
  std::atomic<std::uint64_t> changes_{0};  // of what is lent

  std::mutex mutex_;  // of what follows
  Regions regions_;
  bool told_of_others_ = false, told_of_many_ = false;
};

}  // namespace gyre::comm
