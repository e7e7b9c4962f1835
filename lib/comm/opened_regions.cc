#include "lib/comm/opened_regions.h"

#include "lib/base/log.h"
#include "transports/shm/handover.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace gyre::comm {

using cuda::DeviceRegion;
using cuda::regions_most;
using Kind = RegionLetter::Kind;

namespace {

// A door is answered within microseconds, by a thread that never blocks.
constexpr std::int64_t fetch_most_ns = 10 * ns_per_s;

}  // namespace

Result<std::unique_ptr<OpenedRegions>> OpenedRegions::create(int rank, exec::CudaExecutor& executor,
                                                             std::map<int, std::string> doors) {
  std::unique_ptr<OpenedRegions> made(new OpenedRegions(rank, executor, std::move(doors)));
  made->mappings_ = std::make_shared<Mappings>();
  for (const auto& [peer, door] : made->doors_) {
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

void OpenedRegions::hear(int from, const RegionLetter& letter, const Answer& answer) {
  const Key key{from, letter.number % regions_most};
  if (letter.kind == Kind::withdrawn) return withdraw(key, letter.number);
  const auto is_same = [&](const Coming& one) {
    return one.peer == from && one.letter.number % regions_most == key.second;
  };
  if (mappings_->open.contains(key) || std::ranges::any_of(coming_, is_same)) {
    log_warn("rank {}: rank {} offers a region in the place of one that it has not withdrawn",
             rank_, from);
    return answer(from, {.kind = Kind::refused, .number = letter.number});
  }
  coming_.push_back({from, letter, {}, SystemClock::read() + fetch_most_ns});
}

bool OpenedRegions::tend(const Answer& answer) {
  std::erase_if(coming_, [&](Coming& coming) {
    const auto opened = fetch(coming);
    if (opened.ok() && !*opened) return false;
    if (!opened.ok())
      log_info(Subsystem::alloc, "rank {} cannot open {} bytes of rank {}'s GPU memory: {}", rank_,
               coming.letter.bytes, coming.peer, opened.status().message());
    answer(coming.peer,
           {.kind = opened.ok() ? Kind::opened : Kind::refused, .number = coming.letter.number});
    return true;
  });
  return !free_withdrawn() || !coming_.empty();
}

// False: not yet.
Result<bool> OpenedRegions::fetch(Coming& coming) {
  if (SystemClock::read() > coming.until_ns)
    return Status(Code::Timeout, "its door did not hand it over");
  if (!coming.socket.has_value()) {
    GYRE_ASSIGN(auto door, transport::knock(doors_.at(coming.peer)));
    if (!door.has_value()) return false;
    coming.socket = std::move(*door);
    GYRE_TRY(transport::show_ticket_at_door(coming.socket, coming.letter.ticket));
  }
  GYRE_ASSIGN(const auto file, transport::take_over(coming.socket, coming.letter.bytes));
  if (!file.has_value()) return false;
  GYRE_TRY(open(coming, *file));
  return true;
}

Status OpenedRegions::open(const Coming& coming, const FileDescriptor& file) {
  const exec::CudaDevice& device = *executor_.device();
  GYRE_ASSIGN(auto memory,
              p2p::VirtualMemory::import({device.driver(), device.owner(), device.ordinal()}, file,
                                         coming.letter.bytes));
  const Key key{coming.peer, coming.letter.number % regions_most};
  DeviceRegion region;
  region.begin = reinterpret_cast<std::uint64_t>(memory->begin());
  region.bytes = memory->bytes();
  // The number last: a kernel that finds it finds the rest.
  GYRE_TRY(write(key, region));
  region.number = coming.letter.number;
  GYRE_TRY(write(key, region));
  log_info(Subsystem::alloc, "rank {} has opened region {:#x} of rank {}, {} bytes", rank_,
           coming.letter.number, coming.peer, coming.letter.bytes);
  mappings_->open[key] = {coming.letter.number, std::move(memory)};
  return {};
}

// By the copy engines, whatever kernels run.
Status OpenedRegions::write(const Key& key, const DeviceRegion& region) {
  std::byte* const table = tables_.at(key.first).get();
  return executor_.device()->upload(table + key.second * sizeof region,
                                    std::as_bytes(std::span(&region, 1)));
}

void OpenedRegions::withdraw(const Key& key, std::uint64_t number) {
  std::erase_if(coming_, [&](const Coming& one) {
    return one.peer == key.first && one.letter.number == number;
  });
  const auto found = mappings_->open.find(key);
  if (found == mappings_->open.end() || found->second.number != number) return;
  const Status forgotten = write(key, {});
  // Who still finds it there must find memory behind it.
  if (!forgotten.ok())
    return log_warn("rank {}: a region of rank {} stays open: {}", rank_, key.first,
                    forgotten.message());
  mappings_->withdrawn.push_back(std::move(found->second.memory));
  mappings_->open.erase(found);
}

// False while kernels that have begun before may use it.
bool OpenedRegions::free_withdrawn() {
  if (mappings_->withdrawn.empty() || executor_.was_captured()) return true;
  const auto running = executor_.running();
  if (!running.ok()) return true;
  if (*running) return false;
  mappings_->withdrawn.clear();
  return true;
}

void OpenedRegions::close() {
  coming_.clear();
  tables_.clear();
  mappings_.reset();
}

}  // namespace gyre::comm
