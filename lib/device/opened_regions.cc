#include "lib/device/opened_regions.h"

#include "lib/base/log.h"
#include "lib/loaded/cuda_rest.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace gyre::comm {

using cuda::DeviceRegion;
using cuda::max_regions;
using Kind = RegionMessage::Kind;

namespace {

// A listener is answered within microseconds, by a thread that never blocks.
constexpr std::int64_t max_fetch_ns = 10 * ns_per_s;

}  // namespace

Result<std::unique_ptr<OpenedRegions>> OpenedRegions::create(int rank, exec::CudaExecutor& executor,
                                                             std::map<int, Lender> lenders) {
  std::unique_ptr<OpenedRegions> made(new OpenedRegions(rank, executor, std::move(lenders)));
  made->mappings_ = std::make_shared<Mappings>();
  for (const auto& [peer, lender] : made->lenders_) {
    GYRE_ASSIGN(made->tables_[peer],
                executor.allocate(table_bytes, fmt::format("the regions of rank {}", peer)));
    executor.keep(made->tables_[peer]);
  }
  executor.keep(made->mappings_);
  return made;
}

const DeviceRegion* OpenedRegions::table(int peer) const {
  const auto found = tables_.find(peer);
  return found == tables_.end() ? nullptr
                                : reinterpret_cast<const DeviceRegion*>(found->second.get());
}

void OpenedRegions::hear(int from, const RegionMessage& rank_message, const Answer& answer) {
  const Key key{from, rank_message.number % max_regions};
  if (rank_message.kind == Kind::withdrawn) return withdraw(key, rank_message.number);
  const auto is_same = [&](const IncomingRegion& one) {
    return one.peer == from && one.message.number % max_regions == key.second;
  };
  if (mappings_->open.contains(key) || std::ranges::any_of(coming_, is_same)) {
    log_warn("rank {}: rank {} offers a region in the place of one that it has not withdrawn",
             rank_, from);
    return answer(from, {.kind = Kind::refused, .number = rank_message.number});
  }
  coming_.push_back({from, rank_message, {}, {}, SystemClock::read() + max_fetch_ns});
}

bool OpenedRegions::tend(const Answer& answer) {
  std::erase_if(coming_, [&](IncomingRegion& coming) {
    const auto opened = coming.message.kind == Kind::exported ? import(coming) : fetch(coming);
    if (opened.ok() && !*opened) return false;
    if (!opened.ok())
      log_info(Subsystem::alloc, "rank {} cannot open {} bytes of rank {}'s GPU memory: {}", rank_,
               coming.message.bytes + coming.message.memory.bytes, coming.peer,
               opened.status().message());
    answer(coming.peer,
           {.kind = opened.ok() ? Kind::opened : Kind::refused, .number = coming.message.number});
    return true;
  });
  return !free_withdrawn(answer) || !coming_.empty();
}

// False: not yet.
Result<bool> OpenedRegions::fetch(IncomingRegion& coming) {
  if (SystemClock::read() > coming.until_ns)
    return Status(Code::Timeout, "its listener did not hand it over");
  if (!coming.request)
    coming.request.emplace(lenders_.at(coming.peer).listener, coming.message.ticket,
                           coming.message.bytes);
  if (!coming.file) {
    GYRE_ASSIGN(coming.file, coming.request->advance());
  }
  if (!coming.file) return false;
  coming.until_ns = INT64_MAX;  // nobody is waited for any more but kernels here
  const loaded::CudaRest::Stillness still = executor_.device()->driver().rest->try_rest();
  if (!still.is_held()) return false;
  const exec::CudaDevice& device = *executor_.device();
  GYRE_ASSIGN(auto memory,
              p2p::VirtualMemory::import({device.driver(), device.owner(), device.ordinal()},
                                         *coming.file, coming.message.bytes));
  const auto begin = reinterpret_cast<std::uint64_t>(memory->begin());
  GYRE_TRY(enter(coming, {0, begin, memory->bytes()}, memory));
  return true;
}

// False: not yet.
Result<bool> OpenedRegions::import(const IncomingRegion& coming) {
  const loaded::CudaRest::Stillness still = executor_.device()->driver().rest->try_rest();
  if (!still.is_held()) return false;
  const exec::CudaDevice& device = *executor_.device();
  GYRE_ASSIGN(auto memory,
              p2p::ImportedMemory::open(device.driver(), device.owner(),
                                        lenders_.at(coming.peer).pid, coming.message.memory));
  const auto begin = reinterpret_cast<std::uint64_t>(memory->begin());
  GYRE_TRY(enter(coming, {0, begin, coming.message.memory.bytes}, memory));
  return true;
}

Status OpenedRegions::enter(const IncomingRegion& coming, DeviceRegion region,
                            std::shared_ptr<void> memory) {
  const Key key{coming.peer, coming.message.number % max_regions};
  // The number last: a kernel that finds it finds the rest.
  GYRE_TRY(write(key, region));
  region.number = coming.message.number;
  GYRE_TRY(write(key, region));
  log_info(Subsystem::alloc, "rank {} has opened region {:#x} of rank {}, {} bytes", rank_,
           coming.message.number, coming.peer, region.bytes);
  mappings_->open[key] = {coming.message.number, coming.message.kind == Kind::exported,
                          std::move(memory)};
  return {};
}

// By the copy engines, whatever kernels run.
Status OpenedRegions::write(const Key& key, const DeviceRegion& region) {
  std::byte* const table = tables_.at(key.first).get();
  return executor_.device()->upload(table + key.second * sizeof region,
                                    std::as_bytes(std::span(&region, 1)));
}

void OpenedRegions::withdraw(const Key& key, std::uint64_t number) {
  std::erase_if(coming_, [&](const IncomingRegion& one) {
    return one.peer == key.first && one.message.number == number;
  });
  const auto found = mappings_->open.find(key);
  if (found == mappings_->open.end() || found->second.number != number) return;
  const Status forgotten = write(key, {});
  // Who still finds it there must find memory behind it.
  if (!forgotten.ok())
    return log_warn("rank {}: a region of rank {} stays open: {}", rank_, key.first,
                    forgotten.message());
  mappings_->withdrawn.push_back({key.first, std::move(found->second)});
  mappings_->open.erase(found);
}

// False while kernels that have begun before may use it.
bool OpenedRegions::free_withdrawn(const Answer& answer) {
  std::vector<WithdrawnRegion>& all = mappings_->withdrawn;
  if (all.empty()) return true;
  if (executor_.was_captured()) {
    for (WithdrawnRegion& one : all)
      if (one.what.exported && !std::exchange(one.told_kept, true))
        answer(one.peer, {.kind = Kind::kept, .number = one.what.number});
    return true;
  }
  const auto running = executor_.running();
  if (!running.ok()) return true;
  if (*running) return false;
  for (WithdrawnRegion& one : std::exchange(all, {})) {
    one.what.memory.reset();
    if (one.what.exported) answer(one.peer, {.kind = Kind::closed, .number = one.what.number});
  }
  return true;
}

void OpenedRegions::close() {
  coming_.clear();
  tables_.clear();
  mappings_.reset();
}

}  // namespace gyre::comm
