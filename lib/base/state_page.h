// StatePage: the state that a process shows to tools, in a memfd that they find among its
// descriptors. RankState: one rank's part of it. If the kernel gives no memfd, both lie in the
// process's own memory, and its error files still contain them. Layout: state_page_memory.h;
// reading: state_page_reader.h.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/state_page_memory.h"
#include "lib/base/status.h"
#include "lib/base/thread_state.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre {

class StatePage;

// Where a rank state's peers live; by rank.
struct RankPeers {
  struct Host {
    std::array<std::uint8_t, 16> token{};
    std::string name;
  };
  std::vector<Host> hosts;
  struct Peer {
    std::uint32_t pid;
    std::uint32_t host;  // index
  };
  std::vector<Peer> peers;
};

// Who calls writes; one thread at a time, but for `fail`, which takes its own turn, and the waits
// of kernels, which are the device watch's.
class RankState {
 public:
  RankState() = default;
  RankState(RankState&& other) noexcept;
  RankState& operator=(RankState&& other) noexcept;
  ~RankState();

  const RankIdentity& identity() const { return identity_; }
  const RankStateMemory& memory() const { return *memory_; }
  const StatePage& state_page() const { return *state_page_; }

  // Begins the next flight and gives its serial. No other call in here but `end` and `end_well` is
  // on the path of a short operation.
  std::uint64_t begin(OpenFlightEntry& flight, const FlightCall& call) {
    const std::uint64_t serial = memory_->begun.load(std::memory_order_relaxed) + 1;
    flight.begin(memory_->flights[serial % flight_count], serial, call, source_);
    announce(*memory_, serial);
    return serial;
  }
  [[gnu::always_inline]] void begin(OpenFlightEntry& flight, std::uint64_t sequence,
                                    const ShortFlight& call) {
    RankStateMemory& memory = *memory_;
    const std::uint64_t serial = memory.begun.load(std::memory_order_relaxed) + 1;
    flight.begin(memory.flights[serial % flight_count], serial, sequence, call);
    announce(memory, serial);
  }
  // It first has to wait for a peer.
  void stamp(OpenFlightEntry& flight) const { flight.stamp(source_); }
  // And ends it, if it is open. What ended well is counted: each word has one writer at a time, so
  // that no store has to lock its line.
  void end(OpenFlightEntry& flight, std::uint8_t outcome) {
    if (!flight.is_open()) return;
    if (outcome == 0 && flight.function() < NameTable::max_names) [[likely]]
      return end_well(flight, done(flight.function()), flight.bytes());
    flight.end(outcome, source_);
  }
  // The same of one that is open, has a function's name and so many bytes.
  [[gnu::always_inline]] void end_well(OpenFlightEntry& flight, DoneCounters& done,
                                       std::uint64_t bytes) {
    add(done.operations, 1);
    add(done.bytes, bytes);
    flight.end(0, source_);
  }
  // Of operations of a function, for as long as this lives.
  DoneCounters& done(std::uint8_t function) { return memory_->done[function]; }
  // This thread makes the calls from now on.
  void note_caller();

  // `since_ns` is kept while the same goes on; the communicator is filled in.
  void tell_wait(WaitLane lane, WaitRecord wait);
  void end_wait(WaitLane lane);
  // A wait was told and has not ended.
  bool tells_wait(WaitLane lane) const { return told_[index(lane)].phase != WaitPhase::none; }

  void show_peers(const RankPeers& peers);
  // The first one stays.
  void fail(const Status& why);

 private:
  friend class StatePage;
  void keep_wait(const WaitRecord& wait, std::int64_t until_ns);
  [[gnu::always_inline]] void announce(RankStateMemory& memory, std::uint64_t serial) {
    memory.begun.store(serial, std::memory_order_release);
    // Stores become visible in order: a miss on the next line would hold its first message back.
    __builtin_prefetch(&memory.flights[(serial + 1) % flight_count], 1);
    if (thread_mark() != caller_) [[unlikely]]
      note_caller();
  }
  static void add(SharedWord& word, std::uint64_t more) {
    word.store(word.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  StatePage* state_page_ = nullptr;
  std::uint32_t index_ = 0;  // in the directory; max_rank_states: not in it
  std::uint64_t page_ = 0;   // in the file; 0: not in it
  Mapping mapping_;
  RankStateMemory* memory_ = nullptr;
  TickSource source_ = TickSource::clock;
  RankIdentity identity_;
  std::uintptr_t caller_ = 0;  // its mark
  static constexpr std::size_t index(WaitLane lane) { return static_cast<std::size_t>(lane); }
  std::array<WaitRecord, wait_lane_count> told_;
  std::uint64_t past_waits_ = 0;
};

// Any thread.
class StatePage {
 public:
  struct Owner {
    std::array<std::uint8_t, 16> host{};
    std::string host_name;
    std::string version;
    CodeNames names;
  };
  // The memory is made at the first claim, which alone asks who owns it.
  Result<RankState> claim(const std::function<Owner()>& owner, const RankIdentity& identity);
  // Valid once something was claimed.
  const StatePageMemory& memory() const { return *memory_; }
  int descriptor() const { return file_.get(); }
  // Each rank state, in the order of their claims; none comes or goes meanwhile.
  void look(const std::function<void(const RankStateMemory&)>& at) const;

 private:
  friend class RankState;
  Status open(const Owner& owner);
  std::uint64_t take_pages(std::uint64_t count);
  void give_pages(std::uint64_t page, std::uint64_t count);
  void release(RankState& rank_state);

  mutable std::mutex mutex_;  // of everything; the memory's own rules hold in it
  FileDescriptor file_;
  Mapping mapping_;
  StatePageMemory* memory_ = nullptr;
  std::uint64_t pages_ = 0;                      // of the file
  std::map<std::uint64_t, std::uint64_t> free_;  // first page: how many
  std::uint64_t claims_ = 0;
  std::vector<const RankStateMemory*> rank_states_;  // that are claimed, in the file or not
  TickSource source_ = TickSource::clock;
  std::mutex failing_;  // one `fail` at a time
};

}  // namespace gyre
