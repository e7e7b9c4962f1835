#include "lib/device/lent_regions.h"

#include "lib/base/log.h"
#include "lib/transport/handover.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::comm {

using cuda::max_regions;

LentRegions::LentRegions(int rank, std::vector<int> peers, control::Membership& membership,
                         trust::TicketBook& tickets, const DeviceAllocations& allocations,
                         exec::CudaExecutor& executor)
    : rank_(rank),
      peers_(std::move(peers)),
      membership_(membership),
      tickets_(tickets),
      allocations_(allocations),
      executor_(executor) {}

// mutex_ is held. The one that it lies in, or the end.
LentRegions::Regions::iterator LentRegions::covering(std::uintptr_t address) {
  auto known = regions_.upper_bound(address);
  if (known == regions_.begin()) return regions_.end();
  --known;
  return address - known->first < known->second.bytes ? known : regions_.end();
}

// mutex_ is held.
bool LentRegions::has_room() {
  if (regions_.size() < max_regions) return true;
  if (!std::exchange(told_of_many_, true))
    log_info(Subsystem::alloc, "rank {} lends {} allocations at one time, and no more", rank_,
             max_regions);
  return false;
}

cuda::DevicePlace LentRegions::find(const void* memory, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto known = covering(address);
  if (known != regions_.end() && !known->second.is_over()) return place(*known, address, bytes);
  const auto met = allocations_.find(memory, bytes);
  if (met == nullptr || met->shareable == nullptr ||
      met->device->ordinal() != executor_.device()->ordinal()) {
    if (!std::exchange(told_of_others_, true))
      log_info(Subsystem::alloc,
               "rank {}: {} bytes at {} are not from gyreMemAlloc, nor registered: between "
               "processes, calls copy such buffers through slots",
               rank_, bytes, memory);
    return {};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(met->begin());
  known = regions_.find(begin);
  if (known == regions_.end()) {
    if (!has_room()) return {};
    known = regions_.emplace(begin, LentRegion()).first;
    known->second.memory = met;
    known->second.bytes = met->bytes();
  }
  // Else what lay there before is still to be withdrawn.
  return known->second.is_over() ? cuda::DevicePlace() : place(*known, address, bytes);
}

// mutex_ is held.
cuda::DevicePlace LentRegions::place(Regions::value_type& known, std::uintptr_t address,
                                     std::uint64_t bytes) {
  LentRegion& region = known.second;
  const std::uint64_t offset = address - known.first;
  if (bytes > region.bytes - offset) return {};
  if (region.number != 0 && region.missing.empty() && !region.refused)
    return {region.number, offset};
  if (!region.refused && !std::exchange(region.told, true))
    log_info(Subsystem::alloc,
             "rank {}: {} bytes of {} are lent once all {} ranks of other processes have opened "
             "them; until then, calls copy them through slots",
             rank_, region.bytes, region.whose(), peers_.size());
  return {};
}

Result<std::shared_ptr<RegisteredMemory>> LentRegions::enlist(const void* memory,
                                                              std::uint64_t bytes) {
  const auto copied = [&](std::string_view why) {
    log_info(Subsystem::alloc,
             "rank {}: {} bytes at {}, though registered, are copied through slots between "
             "processes: {}",
             rank_, bytes, memory, why);
    return std::shared_ptr<RegisteredMemory>();
  };
  if (allocations_.find(memory, bytes) != nullptr) {
    (void)find(memory, bytes);
    return std::shared_ptr<RegisteredMemory>();
  }
  const loaded::CudaDriver& driver = executor_.device()->driver();
  const loaded::CurrentContext scope(driver, executor_.device()->owner());
  GYRE_ASSIGN(const loaded::CudaPointer where, find_pointer(driver, memory));
  if (!where.known || !where.on_device) return copied("they are memory of the host");
  if (where.managed) return copied("they are managed memory");
  if (where.range_bytes == 0) return copied("the driver knows no allocation there");
  GYRE_TRY(check("buff", memory, where));
  const std::lock_guard lock(mutex_);
  auto known = regions_.find(where.range_begin);
  if (known == regions_.end()) {
    if (!has_room()) return copied("too much is lent already");
    known = regions_.emplace(where.range_begin, LentRegion()).first;
    known->second.bytes = where.range_bytes;
    known->second.registered = std::make_shared<RegisteredMemory>();
    known->second.registered->begin = where.range_begin;
    known->second.registered->bytes = where.range_bytes;
    known->second.registered->id = where.id;
  }
  const auto& registered = known->second.registered;
  if (registered == nullptr || registered->id != where.id)
    return copied("other memory that was lent had this address until now");
  ++registered->handles;
  return registered;
}

void LentRegions::delist(RegisteredMemory& memory) {
  const std::lock_guard lock(mutex_);
  if (--memory.handles == 0) changes_.fetch_add(1, std::memory_order_relaxed);
}

Departure LentRegions::departure(RegisteredMemory& memory) {
  const std::lock_guard lock(mutex_);
  const bool is_left = memory.withdrawn && (!memory.lease || memory.lease->end());
  return {memory.handles > 0 || is_left, memory.withdrawn, memory.holders, memory.keepers};
}

Status LentRegions::check(std::string_view name, const void* buffer,
                          const loaded::CudaPointer& where) {
  const std::lock_guard lock(mutex_);
  const auto known = covering(reinterpret_cast<std::uintptr_t>(buffer));
  if (known == regions_.end() || known->second.is_over()) return {};
  const auto& registered = known->second.registered;
  if (registered == nullptr || registered->id == where.id) return {};
  return invalid_usage(fmt::format(
      "{} = {} lies in {} registered bytes that were freed before gyreCommDeregister, so other "
      "processes may have had them open: deregister that handle now, and before the free in future",
      name, buffer, registered->bytes));
}

bool LentRegions::tend() {
  withdraw(take_ended(false));
  std::vector<NewRegion> all;
  bool awaits_rest = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [begin, region] : regions_) {
      if (region.number != 0 || region.refused || region.is_over()) continue;
      auto memory = region.memory.lock();
      if (memory != nullptr || region.registered != nullptr)
        all.push_back({begin, std::move(memory), region.registered});
    }
    awaits_rest = awaits_rest_;
  }
  for (const NewRegion& fresh : all) offer(fresh);
  return awaits_rest;
}

void LentRegions::withdraw_all() { withdraw(take_ended(true)); }

// What was registered is unmapped by peers, and freed then: not under a kernel that lends it.
std::vector<LentRegions::LentRegion> LentRegions::take_ended(bool all) {
  std::vector<LentRegion> ended;
  const std::lock_guard lock(mutex_);
  awaits_rest_ = false;
  for (auto at = regions_.begin(); at != regions_.end();) {
    bool goes = all || at->second.is_over();
    if (goes && !all && at->second.registered != nullptr) {
      const auto running = executor_.running();
      goes = !running.ok() || !*running;
      awaits_rest_ |= !goes;
    }
    if (!goes) {
      ++at;
      continue;
    }
    ended.push_back(std::move(at->second));
    at = regions_.erase(at);
    changes_.fetch_add(1, std::memory_order_relaxed);
  }
  return ended;
}

// Its tickets go with it: who has not come yet finds the listener closed.
void LentRegions::withdraw(std::vector<LentRegion> ended) {
  for (const LentRegion& region : ended) {
    if (region.number != 0) {
      slots_.erase(region.number % max_regions);
      const auto rank_message =
          encode(RegionMessage{.kind = RegionMessage::Kind::withdrawn, .number = region.number});
      for (const int peer : peers_) (void)membership_.send(peer, region_key, rank_message);
    }
    if (region.registered == nullptr) continue;
    const std::lock_guard lock(mutex_);
    std::erase_if(ended_, [](const auto& one) { return one.second.expired(); });
    ended_[region.number] = region.registered;
    region.registered->withdrawn = true;
  }
}

// There is a slot: as many as there may be regions.
std::uint64_t LentRegions::take_number() {
  std::uint64_t slot = numbers_ % max_regions;
  while (!slots_.insert(slot).second) slot = (slot + 1) % max_regions;
  return ++numbers_ * max_regions + slot;
}

void LentRegions::offer(const NewRegion& fresh) {
  LentRegion made;
  const bool is_registered = fresh.registered != nullptr;
  const Status offered =
      is_registered ? offer_export(made, *fresh.registered) : offer_file(made, *fresh.memory);
  const std::uint64_t bytes = is_registered ? fresh.registered->bytes : fresh.memory->bytes();
  if (offered.ok())
    log_info(Subsystem::alloc, "rank {}: {} bytes of device {} are offered as region {:#x}", rank_,
             bytes, executor_.device()->ordinal(), made.number);
  else if (is_registered)
    log_info(Subsystem::alloc,
             "rank {}: {} bytes, though registered, are copied through slots between processes, "
             "as memory of pools (cuMemAllocAsync) and of the driver's virtual memory is: {}",
             rank_, bytes, offered.message());
  else
    log_warn(
        "rank {}: {} bytes of gyreMemAlloc cannot be lent to other processes, and are copied: {}",
        rank_, bytes, offered.message());
  const std::lock_guard lock(mutex_);
  LentRegion& region = regions_.at(fresh.begin);
  region.number = made.number;
  region.missing = std::move(made.missing);
  region.tickets = std::move(made.tickets);
  region.refused = !offered.ok();
}

Status LentRegions::offer_file(LentRegion& region, const DeviceAllocation& memory) {
  GYRE_ASSIGN(auto exported, memory.shareable->export_file());
  // Closed with the last ticket.
  const auto file = std::make_shared<FileDescriptor>(std::move(exported));
  region.number = take_number();
  RegionMessage rank_message{.number = region.number, .bytes = memory.bytes()};
  for (const int peer : peers_) {
    const auto answer = [file, bytes = rank_message.bytes, peer](const FileDescriptor& socket) {
      transport::answer_with_memory(socket, *file, bytes,
                                    fmt::format("GPU memory for rank {}", peer));
    };
    GYRE_ASSIGN(rank_message.ticket, tickets_.issue(answer));
    region.tickets.push_back(transport::IssuedTicket({&tickets_, rank_message.ticket}));
    GYRE_TRY(membership_.send(peer, region_key, encode(rank_message)));
    region.missing.insert(peer);
  }
  return {};
}

Status LentRegions::offer_export(LentRegion& region, RegisteredMemory& memory) {
  const loaded::CudaDriver& driver = executor_.device()->driver();
  GYRE_ASSIGN(p2p::Lease lease, p2p::Lease::make());
  RegionMessage rank_message{.kind = RegionMessage::Kind::exported};
  {
    const loaded::CurrentContext scope(driver, executor_.device()->owner());
    const auto* const begin = reinterpret_cast<const std::byte*>(memory.begin);
    GYRE_ASSIGN(rank_message.memory, export_memory(driver, lease, begin, memory.bytes));
    // It may have been freed meanwhile, and this be the export of something else.
    GYRE_ASSIGN(const loaded::CudaPointer where, find_pointer(driver, begin));
    if (where.id != memory.id || rank_message.memory.bytes != rank_message.memory.allocation_bytes)
      return invalid_usage("it was freed while it was registered");
  }
  region.number = rank_message.number = take_number();
  {
    const std::lock_guard lock(mutex_);
    memory.lease = std::move(lease);
  }
  for (const int peer : peers_) {
    GYRE_TRY(membership_.send(peer, region_key, encode(rank_message)));
    region.missing.insert(peer);
  }
  return {};
}

void LentRegions::hear(int from, const RegionMessage& rank_message) {
  std::vector<transport::IssuedTicket> used;
  const std::lock_guard lock(mutex_);
  hear_of_ended(from, rank_message);
  for (auto& [begin, region] : regions_) {
    if (region.number != rank_message.number || region.missing.erase(from) == 0) continue;
    const bool is_opened = rank_message.kind == RegionMessage::Kind::opened;
    if (is_opened && region.registered != nullptr) region.registered->holders.insert(from);
    if (!is_opened && !std::exchange(region.refused, true))
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

// mutex_ is held. Only for words: the lease knows who has it open.
void LentRegions::hear_of_ended(int from, const RegionMessage& rank_message) {
  const auto found = ended_.find(rank_message.number);
  const auto memory = found == ended_.end() ? nullptr : found->second.lock();
  if (memory == nullptr) return;
  if (rank_message.kind == RegionMessage::Kind::opened) memory->holders.insert(from);
  if (rank_message.kind == RegionMessage::Kind::closed) memory->holders.erase(from);
  if (rank_message.kind == RegionMessage::Kind::kept) memory->keepers.insert(from);
}

}  // namespace gyre::comm
