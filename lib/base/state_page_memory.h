// The layout of `gyre-wait`, the memory that a process shows to tools. The writer (state_page.h)
// and readers (state_page_reader.h) share it. It is written word by word. Anybody who may open the
// process's descriptors can read it. A reader trusts nothing in it.
//
//   page         a process: who it is, the names of its codes, where its rank states lie
//   rank state   one rank of one communicator: its current wait, its flights, its peers
#pragma once

#include "lib/base/double_buffered.h"
#include "lib/base/flight.h"
#include "lib/base/units.h"
#include "lib/base/wait.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gyre {

inline constexpr const char* state_page_file_name = "gyre-wait";
inline constexpr std::uint32_t state_page_layout = 3;
// "GYREWAIT", little-endian; stored when the rest is there.
inline constexpr std::uint64_t state_page_magic = 0x5449'4157'4552'5947;
inline constexpr std::uint32_t max_rank_states = 4096;
inline constexpr std::size_t state_page_bytes = 4096;

// Text of fixed room, cut if longer, zeros behind it.
template <std::size_t room>
struct FixedText {
  std::array<char, room> bytes{};
  FixedText() = default;
  explicit FixedText(std::string_view text) { text.copy(bytes.data(), room - 1); }
  std::string_view view() const {
    const std::string_view all(bytes.data(), room);
    return all.substr(0, all.find('\0'));
  }
};

// What the codes of flights mean, in the words of the process's own library.
struct NameTable {
  static constexpr std::size_t max_names = 32;
  std::array<FixedText<24>, max_names> names{};
};
struct CodeNames {
  NameTable functions, types, ops, algorithms, protocols;
};

struct StatePageHead {
  std::uint32_t layout = state_page_layout;
  std::uint32_t pid = 0;  // as the process itself knows it
  std::uint64_t rank_states = max_rank_states;
  TickPair origin;
  TickSource source = TickSource::clock;
  std::uint32_t uid = 0;
  std::array<std::uint8_t, 16> host{};  // equal for all processes of a host
  FixedText<64> host_name;
  FixedText<32> version;
  CodeNames names;
};

struct StatePageMemory {
  SharedWord magic;
  DoubleBuffered<StatePageHead> head;
  // The page where each rank state begins, in the low half; 0: none. The high half changes with
  // each new rank state, so that a reader can tell whether what it read is still the same. It turns
  // after 2^32 rank states of 100 us, five days; a reading takes less than a second.
  std::array<SharedWord, max_rank_states> directory;
};

// What an operation does, or waits in.
enum class WaitPhase : std::uint64_t { none, joining, opening, moving, blaming };
std::string_view wait_phase_name(WaitPhase phase);

// A communicator may be in a collective and in sends and receives at once, and have kernels on
// their way. Of kernels, waits that are over are not kept.
enum class WaitLane : std::uint8_t { collective, transfers, kernels };
inline constexpr std::size_t wait_lane_count = 3;

// What one operation waits for; `what` nothing: it does not wait, or not for long yet.
struct WaitRecord {
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint64_t serial = 0;  // of its flight; 0: it is no operation
  std::int64_t since_ns = 0;
  WaitPhase phase = WaitPhase::none;
  BlockedOn what = BlockedOn::nothing;
  std::uint8_t function = 0;
  std::int32_t peer = -1;
  std::int32_t channel = 0;
  std::uint32_t chunk = 0;
};

// One that was told and is over. The last ones are kept for timelines.
struct PastWait {
  WaitRecord wait;
  std::int64_t until_ns = 0;
};
inline constexpr std::uint32_t past_wait_count = 1024;
struct PastWaitLine {
  SharedWord number;  // on its communicator, from 1; 0 while the rest changes
  SharedWords<PastWait> wait;
};

struct RankIdentity {
  std::uint64_t communicator = 0;  // the same on all its ranks
  FixedText<16> name;              // the same for people, as in logs
  FixedText<64> label;             // the caller's name for it
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

// Why the communicator is broken.
struct FailureRecord {
  static constexpr std::size_t max_culprits = 16;
  std::int64_t at_ns = 0;
  std::int32_t code = 0;  // 0: it is not
  std::int32_t culprit_count = 0;
  std::array<std::int32_t, max_culprits> culprits{};
  FixedText<912> text;
};

// Operations of one function that ended well, and their bytes.
struct DoneCounters {
  SharedWord operations, bytes;
};

struct HostEntry {
  std::array<std::uint8_t, 16> token{};
  FixedText<64> name;
};

struct alignas(state_page_bytes) RankStateMemory {
  SharedWord begun;   // flights; the last serial
  SharedWord caller;  // the thread that made the last call
  alignas(64) std::array<DoubleBuffered<WaitRecord>, wait_lane_count> waits;
  alignas(64) DoubleBuffered<RankIdentity> identity;
  DoubleBuffered<FailureRecord> failure;
  SharedWord hosts;  // how many follow; 0: the ranks have not met yet
  alignas(64) std::array<DoneCounters, NameTable::max_names> done;  // by function
  SharedWord long_waits;                                            // that were told and are over
  alignas(state_page_bytes) std::array<FlightLine, flight_count> flights;
  std::array<PastWaitLine, past_wait_count> past_waits;
  // Behind it, for each rank a word (process id, index of its host << 32), then the hosts.
};

// Who counts without looking at single operations touches one page of it.
static_assert(offsetof(RankStateMemory, flights) == state_page_bytes);

struct RankStateSpan {
  std::uint64_t ranks_offset, hosts_offset, bytes;
};
constexpr RankStateSpan rank_state_span(std::int32_t size) {
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t hosts = sizeof(RankStateMemory) + ranks * sizeof(SharedWord);
  return {sizeof(RankStateMemory), hosts,
          round_up(hosts + ranks * sizeof(SharedWords<HostEntry>), state_page_bytes)};
}

}  // namespace gyre
