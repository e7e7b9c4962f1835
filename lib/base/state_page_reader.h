// Reads a state page (state_page_memory.h) into values: this process's own, or another one's
// through its descriptor, whether that process runs, is stopped or loops. Every text, index and
// length is checked before use.
#pragma once

#include "lib/base/state_page.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre {

// A flight with its times in nanoseconds of the monotonic clock.
struct TimedFlightEntry {
  FlightEntry flight;
  std::optional<std::int64_t> start_ns;
  std::optional<std::int64_t> end_ns;  // nothing: open
};

// What a rank state says without its operations one by one: its first page.
struct RankSummary {
  struct DoneCount {
    std::uint64_t operations = 0, bytes = 0;
  };
  RankIdentity identity;
  std::uint64_t begun = 0;        // flights
  std::uint32_t caller = 0;       // thread
  bool has_met = false;           // its ranks have
  std::vector<WaitRecord> waits;  // by lane, but only those that there are
  std::optional<FailureRecord> failure;
  std::array<DoneCount, NameTable::max_names> done{};  // by function
  std::uint64_t long_waits = 0;                        // that are over
};

struct RankSnapshot : RankSummary {
  std::vector<PastWait> past_waits;       // in their order; the last 1,024
  std::vector<TimedFlightEntry> flights;  // by serial; the last 1,024
  std::vector<HostEntry> hosts;
  std::vector<RankPeers::Peer> peers;  // by rank; empty until the ranks have met

  // The last flight that has ended, and those that have not. Null or empty if there is none.
  const TimedFlightEntry* last_done() const;
  std::vector<const TimedFlightEntry*> open() const;
  // The wait of that flight, or null.
  const WaitRecord* wait_of(std::uint64_t serial) const;
};

struct StatePageSnapshot {
  StatePageHead head;
  std::vector<RankSnapshot> rank_states;
};

// Of another process: a descriptor that /proc/PID/fd gave.
Result<StatePageSnapshot> read_state_page(int descriptor);
// Of this one.
RankSnapshot read_rank_state(const RankState& rank_state);
// Of its rank states the heads alone: a page of each is touched.
std::vector<RankSummary> read_heads(const StatePage& state_page);

// The name of a code; "code 7" if there is none.
std::string name_of(const NameTable& table, std::uint8_t code);
// Nothing but printable ASCII: what other processes write may move cursors and split lines.
std::string printable(std::string_view text);

}  // namespace gyre
