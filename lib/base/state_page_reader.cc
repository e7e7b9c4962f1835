#include "lib/base/state_page_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>

namespace gyre {
namespace {

constexpr std::int32_t max_size = 1 << 24;  // of a communicator; as in the control plane

Mapping map_for_reading(int file, std::uint64_t offset, std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return {};
  return Mapping({static_cast<std::byte*>(memory), bytes});
}

// Sums of a few times of others are times again: 73 years either way.
std::int64_t sane_time(std::int64_t ns) {
  constexpr std::int64_t max_ns = std::int64_t{1} << 61;
  return std::clamp(ns, -max_ns, max_ns);
}

// The end of a flight that had no clock reading of its own.
TimedFlightEntry timed(const FlightEntry& flight, const TickScale& scale) {
  TimedFlightEntry shown{flight, std::nullopt, std::nullopt};
  if (flight.start_ticks != 0) shown.start_ns = sane_time(scale.to_ns(flight.start_ticks));
  switch (flight.end) {
    case FlightEnd::open:
      break;
    case FlightEnd::exact:
    case FlightEnd::soon:
      shown.end_ns = sane_time(scale.to_ns(flight.end_ticks));
      break;
    case FlightEnd::late:
      shown.end_ns = sane_time(static_cast<std::int64_t>(flight.end_ticks));
      break;
  }
  return shown;
}

bool is_sane(const RankIdentity& identity) {
  return identity.size >= 1 && identity.size <= max_size && identity.rank >= 0 &&
         identity.rank < identity.size;
}

bool is_sane(const WaitRecord& wait) {
  return wait.phase != WaitPhase::none && wait.phase <= WaitPhase::blaming &&
         static_cast<int>(wait.what) < blocked_on_count;
}

std::vector<WaitRecord> read_waits(const RankStateMemory& memory) {
  std::vector<WaitRecord> waits;
  for (const DoubleBuffered<WaitRecord>& lane : memory.waits) {
    auto wait = lane.read();
    if (!wait || !is_sane(*wait)) continue;
    wait->since_ns = sane_time(wait->since_ns);
    waits.push_back(*wait);
  }
  return waits;
}

std::vector<PastWait> read_past_waits(const RankStateMemory& memory) {
  std::map<std::uint64_t, PastWait> waits;
  for (const PastWaitLine& line : memory.past_waits) {
    const std::uint64_t number = line.number.load(std::memory_order_acquire);
    if (number == 0) continue;
    PastWait past = line.wait.load();
    past.wait.since_ns = sane_time(past.wait.since_ns);
    past.until_ns = sane_time(past.until_ns);
    if (line.number.load(std::memory_order_relaxed) == number && is_sane(past.wait))
      waits.emplace(number, past);
  }
  std::vector<PastWait> sorted;
  for (const auto& [number, past] : waits) sorted.push_back(past);
  return sorted;
}

void read_flights(const RankStateMemory& memory, const TickScale& scale, RankSnapshot& view) {
  for (const FlightLine& line : memory.flights) {
    const auto flight = read_flight(line);
    if (flight && flight->end <= FlightEnd::late) view.flights.push_back(timed(*flight, scale));
  }
  std::ranges::sort(view.flights, {},
                    [](const TimedFlightEntry& one) { return one.flight.serial; });
}

// `start` holds ledger_span(size).bytes.
void read_peers(const std::byte* start, RankSnapshot& view) {
  const auto& memory = *reinterpret_cast<const RankStateMemory*>(start);
  // Pairs with the release in RankState::show_peers.
  const std::uint64_t hosts = memory.hosts.load(std::memory_order_acquire);
  const auto size = static_cast<std::uint64_t>(view.identity.size);
  if (hosts == 0 || hosts > size) return;
  const RankStateSpan span = rank_state_span(view.identity.size);
  const auto* notes = reinterpret_cast<const SharedWords<HostEntry>*>(start + span.hosts_offset);
  for (std::uint64_t host = 0; host < hosts; ++host) view.hosts.push_back(notes[host].load());
  const auto* words = reinterpret_cast<const SharedWord*>(start + span.ranks_offset);
  for (std::uint64_t rank = 0; rank < size; ++rank) {
    const std::uint64_t word = words[rank].load(std::memory_order_relaxed);
    const auto host = static_cast<std::uint32_t>(word >> 32);
    view.peers.push_back({static_cast<std::uint32_t>(word), host < hosts ? host : 0});
  }
}

RankSummary read_head(const RankStateMemory& memory, const RankIdentity& identity) {
  RankSummary head;
  head.identity = identity;
  head.begun = memory.begun.load(std::memory_order_acquire);
  head.caller = static_cast<std::uint32_t>(memory.caller.load(std::memory_order_relaxed));
  head.has_met = memory.hosts.load(std::memory_order_relaxed) != 0;
  head.waits = read_waits(memory);
  head.failure = memory.failure.read();
  if (head.failure) {
    auto& count = head.failure->culprit_count;
    count = std::clamp<std::int32_t>(count, 0, FailureRecord::max_culprits);
    head.failure->at_ns = sane_time(head.failure->at_ns);
    if (head.failure->code == 0) head.failure.reset();
  }
  for (std::size_t function = 0; function < head.done.size(); ++function)
    head.done[function] = {memory.done[function].operations.load(std::memory_order_relaxed),
                           memory.done[function].bytes.load(std::memory_order_relaxed)};
  head.long_waits = memory.long_waits.load(std::memory_order_relaxed);
  return head;
}

RankSnapshot view_of(const std::byte* start, const TickScale& scale, const RankIdentity& identity) {
  const auto& memory = *reinterpret_cast<const RankStateMemory*>(start);
  RankSnapshot view{read_head(memory, identity), read_past_waits(memory), {}, {}, {}};
  read_flights(memory, scale, view);
  read_peers(start, view);
  return view;
}

std::optional<RankSnapshot> read_foreign(int file, std::uint64_t file_bytes, std::uint64_t entry,
                                         const TickScale& scale) {
  const std::uint64_t offset = (entry & UINT32_MAX) * state_page_bytes;
  if (offset + sizeof(RankStateMemory) > file_bytes) return std::nullopt;
  Mapping head = map_for_reading(file, offset, sizeof(RankStateMemory));
  if (!head.has_value()) return std::nullopt;
  const auto identity = reinterpret_cast<const RankStateMemory*>(head.get().data)->identity.read();
  if (!identity || !is_sane(*identity)) return std::nullopt;
  const std::uint64_t bytes = rank_state_span(identity->size).bytes;
  if (bytes > file_bytes || offset > file_bytes - bytes) return std::nullopt;
  const Mapping whole = map_for_reading(file, offset, bytes);
  if (!whole.has_value()) return std::nullopt;
  return view_of(whole.get().data, scale, *identity);
}

}  // namespace

const TimedFlightEntry* RankSnapshot::last_done() const {
  const auto found =
      std::find_if(flights.rbegin(), flights.rend(),
                   [](const TimedFlightEntry& one) { return one.end_ns.has_value(); });
  return found == flights.rend() ? nullptr : &*found;
}

std::vector<const TimedFlightEntry*> RankSnapshot::open() const {
  std::vector<const TimedFlightEntry*> found;
  for (const TimedFlightEntry& one : flights)
    if (!one.end_ns) found.push_back(&one);
  return found;
}

const WaitRecord* RankSnapshot::wait_of(std::uint64_t serial) const {
  const auto found = std::ranges::find(waits, serial, &WaitRecord::serial);
  return found == waits.end() ? nullptr : &*found;
}

Result<StatePageSnapshot> read_state_page(int descriptor) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0) return Status::from_errno("fstat of a state page", errno);
  const int seals = fcntl(descriptor, F_GET_SEALS);
  const auto file_bytes = static_cast<std::uint64_t>(file.st_size);
  // Unsealed, it could shrink while it is mapped, which would be our end.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || file_bytes < sizeof(StatePageMemory))
    return invalid_argument("it is no state page: its seals or its size are wrong");
  const Mapping mapping = map_for_reading(descriptor, 0, sizeof(StatePageMemory));
  if (!mapping.has_value()) return Status::from_errno("mapping a state page", errno);
  const auto& memory = *reinterpret_cast<const StatePageMemory*>(mapping.get().data);
  // Pairs with the release in Board::open.
  if (memory.magic.load(std::memory_order_acquire) != state_page_magic)
    return invalid_argument("it is no state page, or not yet");
  auto head = memory.head.read();
  if (!head) return internal_error("the state page's head changed during every attempt to read it");
  if (head->layout != state_page_layout)
    return invalid_usage(fmt::format("its library ({}) writes layout {}, and this program reads {}",
                                     printable(head->version.view()), head->layout,
                                     state_page_layout));
  head->origin.ns = sane_time(head->origin.ns);
  StatePageSnapshot view{*head, {}};
  const TickScale scale(head->origin, read_tick_pair(head->source));
  for (const SharedWord& entry : memory.directory) {
    // Pairs with the release in Board::claim.
    const std::uint64_t before = entry.load(std::memory_order_acquire);
    if (before == 0) continue;
    auto rank_state = read_foreign(descriptor, file_bytes, before, scale);
    // Given back meanwhile: what was read may be half of another.
    if (rank_state && entry.load(std::memory_order_acquire) == before)
      view.rank_states.push_back(std::move(*rank_state));
  }
  return view;
}

RankSnapshot read_rank_state(const RankState& rank_state) {
  const StatePageHead head = rank_state.state_page().memory().head.read().value_or(StatePageHead());
  const TickScale scale(head.origin, read_tick_pair(head.source));
  return view_of(reinterpret_cast<const std::byte*>(&rank_state.memory()), scale,
                 rank_state.identity());
}

std::vector<RankSummary> read_heads(const StatePage& state_page) {
  std::vector<RankSummary> heads;
  state_page.look([&](const RankStateMemory& memory) {
    const auto identity = memory.identity.read();
    if (identity) heads.push_back(read_head(memory, *identity));
  });
  return heads;
}

std::string name_of(const NameTable& table, std::uint8_t code) {
  if (code >= NameTable::max_names || table.names[code].view().empty())
    return fmt::format("code {}", code);
  return printable(table.names[code].view());
}

std::string printable(std::string_view text) {
  std::string shown(text);
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

}  // namespace gyre
