#include "lib/comm/lent_regions.h"

#include "lib/base/log.h"
#include "transports/shm/handover.h"

#include <fmt/format.h>

#include <utility>

namespace gyre::comm {

using cuda::regions_most;

LentRegions::LentRegions(int rank, std::vector<int> peers, bootstrap::Membership& membership,
                         trust::TicketBook& tickets, const DeviceAllocations& allocations,
                         const exec::CudaDevice& device)
    : rank_(rank),
      peers_(std::move(peers)),
      membership_(membership),
      tickets_(tickets),
      allocations_(allocations),
      device_(device) {}

cuda::DevicePlace LentRegions::find(const void* memory, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto known = regions_.upper_bound(address);
  if (known != regions_.begin()) {
    --known;
    if (address - known->first < known->second.bytes && !known->second.memory.expired())
      return place(*known, address, bytes);
  }
  const auto met = allocations_.find(memory, bytes);
  if (met == nullptr || met->shareable == nullptr || met->device->ordinal() != device_.ordinal()) {
    if (!std::exchange(told_of_others_, true))
      log_info(Subsystem::alloc,
               "rank {}: {} bytes at {} are not from gyreMemAlloc: between processes, calls copy "
               "such buffers through slots",
               rank_, bytes, memory);
    return {};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(met->begin());
  known = regions_.find(begin);
  if (known == regions_.end()) {
    if (regions_.size() == regions_most) {
      if (!std::exchange(told_of_many_, true))
        log_info(Subsystem::alloc, "rank {} lends {} allocations at one time, and no more", rank_,
                 regions_most);
      return {};
    }
    known = regions_.emplace(begin, Region()).first;
    known->second.memory = met;
    known->second.bytes = met->bytes();
  }
  // Else what lay there before is still to be withdrawn.
  return known->second.memory.expired() ? cuda::DevicePlace() : place(*known, address, bytes);
}

// mutex_ is held.
cuda::DevicePlace LentRegions::place(Regions::value_type& known, std::uintptr_t address,
                                     std::uint64_t bytes) {
  Region& region = known.second;
  const std::uint64_t offset = address - known.first;
  if (bytes > region.bytes - offset) return {};
  if (region.number != 0 && region.missing.empty() && !region.refused)
    return {region.number, offset};
  if (!region.refused && !std::exchange(region.told, true))
    log_info(Subsystem::alloc,
             "rank {}: {} bytes of gyreMemAlloc are lent once all {} ranks of other processes have "
             "opened them; until then, calls copy them through slots",
             rank_, region.bytes, peers_.size());
  return {};
}

void LentRegions::tend() {
  withdraw(take_ended(false));
  std::vector<std::pair<std::uintptr_t, std::shared_ptr<const DeviceAllocation>>> fresh;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [begin, region] : regions_)
      if (region.number == 0 && !region.refused)
        if (auto memory = region.memory.lock()) fresh.emplace_back(begin, std::move(memory));
  }
  for (const auto& [begin, memory] : fresh) offer(begin, *memory);
}

void LentRegions::withdraw_all() { withdraw(take_ended(true)); }

std::vector<LentRegions::Region> LentRegions::take_ended(bool all) {
  std::vector<Region> ended;
  const std::lock_guard lock(mutex_);
  for (auto at = regions_.begin(); at != regions_.end();) {
    if (!all && !at->second.memory.expired()) {
      ++at;
      continue;
    }
    ended.push_back(std::move(at->second));
    at = regions_.erase(at);
    changes_.fetch_add(1, std::memory_order_relaxed);
  }
  return ended;
}

// Its tickets go with it: who has not come yet finds the door closed.
void LentRegions::withdraw(std::vector<Region> ended) {
  for (const Region& region : ended) {
    if (region.number == 0) continue;
    slots_.erase(region.number % regions_most);
    const auto letter =
        encode(RegionLetter{.kind = RegionLetter::Kind::withdrawn, .number = region.number});
    for (const int peer : peers_) (void)membership_.send(peer, region_key, letter);
  }
}

// There is a slot: as many as there may be regions.
std::uint64_t LentRegions::take_number() {
  std::uint64_t slot = numbers_ % regions_most;
  while (!slots_.insert(slot).second) slot = (slot + 1) % regions_most;
  return ++numbers_ * regions_most + slot;
}

void LentRegions::offer(std::uintptr_t begin, const DeviceAllocation& memory) {
  Region made;
  const Status offered = offer_to_all(made, memory);
  if (offered.ok())
    log_info(Subsystem::alloc, "rank {}: {} bytes of device {} are offered as region {:#x}", rank_,
             memory.bytes(), device_.ordinal(), made.number);
  else
    log_warn(
        "rank {}: {} bytes of gyreMemAlloc cannot be lent to other processes, and are copied: "
        "{}",
        rank_, memory.bytes(), offered.message());
  const std::lock_guard lock(mutex_);
  Region& region = regions_.at(begin);
  region.number = made.number;
  region.missing = std::move(made.missing);
  region.tickets = std::move(made.tickets);
  region.refused = !offered.ok();
}

Status LentRegions::offer_to_all(Region& region, const DeviceAllocation& memory) {
  GYRE_ASSIGN(auto exported, memory.shareable->export_file());
  // Closed with the last ticket.
  const auto file = std::make_shared<FileDescriptor>(std::move(exported));
  region.number = take_number();
  RegionLetter letter{.number = region.number, .bytes = memory.bytes(), .ticket = {}};
  for (const int peer : peers_) {
    const auto answer = [file, bytes = letter.bytes, peer](const FileDescriptor& socket) {
      const Status sent = transport::hand_over(socket, *file, bytes);
      // The peer sees the socket close, and refuses.
      if (!sent.ok()) log_warn("GPU memory for rank {}: {}", peer, sent.message());
    };
    GYRE_ASSIGN(letter.ticket, tickets_.issue(answer));
    region.tickets.push_back(transport::IssuedTicket({&tickets_, letter.ticket}));
    GYRE_TRY(membership_.send(peer, region_key, encode(letter)));
    region.missing.insert(peer);
  }
  return {};
}

void LentRegions::hear(int from, const RegionLetter& letter) {
  std::vector<transport::IssuedTicket> used;
  const std::lock_guard lock(mutex_);
  for (auto& [begin, region] : regions_) {
    if (region.number != letter.number || region.missing.erase(from) == 0) continue;
    if (letter.kind == RegionLetter::Kind::refused && !std::exchange(region.refused, true))
      log_info(Subsystem::alloc,
               "rank {}: rank {} cannot open region {:#x}: calls copy it through slots", rank_,
               from, region.number);
    if (!region.missing.empty()) return;
    used = std::move(region.tickets);
    changes_.fetch_add(1, std::memory_order_relaxed);
    if (!region.refused)
      log_info(Subsystem::alloc, "rank {} lends region {:#x} to {} ranks of other processes", rank_,
               region.number, peers_.size());
    return;
  }
}

}  // namespace gyre::comm
