// Reads a board (board_memory.h) into values: another process's through its descriptor, running,
// stopped or looping, or this one's own. What it finds is checked before use: no text, index or
// length of it is believed.
#pragma once

#include "lib/base/board.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre {

// A flight with its times in nanoseconds of the monotonic clock.
struct TimedFlight {
  Flight flight;
  std::optional<std::int64_t> start_ns;
  std::optional<std::int64_t> end_ns;  // nothing: open
};

// What a ledger says without its operations one by one: its first page.
struct LedgerHead {
  struct Done {
    std::uint64_t operations = 0, bytes = 0;
  };
  LedgerIdentity identity;
  std::uint64_t begun = 0;        // flights
  std::uint32_t caller = 0;       // thread
  bool has_met = false;           // its ranks have
  std::vector<WaitRecord> waits;  // by lane, but only those that there are
  std::optional<FailureNote> failure;
  std::array<Done, NameTable::most> done{};  // by function
  std::uint64_t long_waits = 0;              // that are over
};

struct LedgerView : LedgerHead {
  std::vector<PastWait> past_waits;  // in their order; the last 1,024
  std::vector<TimedFlight> flights;  // by serial; the last 1,024
  std::vector<HostNote> hosts;
  std::vector<LedgerPeers::Peer> peers;  // by rank; empty until the ranks have met

  // The last flight that has ended, and those that have not. Null or empty if there is none.
  const TimedFlight* last_done() const;
  std::vector<const TimedFlight*> open() const;
  // The wait of that flight, or null.
  const WaitRecord* wait_of(std::uint64_t serial) const;
};

struct BoardView {
  BoardHead head;
  std::vector<LedgerView> ledgers;
};

// Of another process: a descriptor that /proc/PID/fd gave.
Result<BoardView> read_board(int descriptor);
// Of this one.
LedgerView read_ledger(const Ledger& ledger);
// Of its ledgers the heads alone: a page of each is touched.
std::vector<LedgerHead> read_heads(const Board& board);

// The name of a code; "code 7" if there is none.
std::string name_of(const NameTable& table, std::uint8_t code);
// Nothing but printable ASCII: what other processes write may move cursors and split lines.
std::string printable(std::string_view text);

}  // namespace gyre
