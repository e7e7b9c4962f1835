// The machine behind tests/support/host_device/host_device.h: fibers, their scheduler, and the
// stores of each block that others do not see yet. One machine at a time, in one thread.
#pragma once

#include "tests/support/host_device/delayed_memory.h"
#include "tests/support/host_device/host_device.h"
#include "tests/support/host_device/line_memory.h"
#include "tests/support/host_device/race_watch.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace gyre::tests {

struct Block;

struct Fiber {
  enum class State { ready, at_barrier, at_warp, done };
  Block* block = nullptr;
  std::uint32_t thread = 0;
  State state = State::ready;
  cuda::WaitingFor what = cuda::WaitingFor::nothing;
  std::uint32_t link = 0;
  std::size_t ready_at = 0;  // in the machine's list
  GranuleMap pending;        // stored since the last barrier
  // Stored under a multicast group's address, and not fenced yet; and whether what the block has
  // acquired can be read under such an address.
  std::vector<std::pair<std::byte*, cuda::Bytes16>> aliased;
  bool alias_fresh = false;
  // What it brought to the warp's meeting.
  bool mine = false;
  std::byte* place = nullptr;
  bool stores = false;
  cuda::Bytes16 part{};
  void* resume = nullptr;
  std::unique_ptr<std::byte[]> stack;
};

// Threads that meet: of a block, or of a warp.
struct Meeting {
  std::uint32_t arrived = 0;
  bool any = false;
  bool result = false;
};

struct Line {
  std::byte* place;
  std::byte bytes[line_bytes];
};

struct Block {
  const Grid* grid = nullptr;
  std::uint32_t index = 0;
  std::size_t number = 0;  // among those of all grids
  std::vector<std::unique_ptr<Fiber>> threads;
  Meeting barrier;
  std::vector<Meeting> warps;
  std::vector<std::byte> memory;
  GranuleMap pending;       // stored before the last barrier, not yet in memory
  std::vector<Line> lines;  // the same of whole lines, oldest first
  GranuleMap seen;          // copies that may have grown old
};

class Machine {
 public:
  Machine(const std::vector<Grid>& grids, const MachineOptions& options);
  std::string run();

  Fiber& self() { return *running_; }
  Block& block() { return *running_->block; }
  const MachineOptions& options() const { return options_; }
  std::uint64_t now() const;

  void wait_for(cuda::WaitingFor what, std::uint32_t link);
  void yield();
  void maybe_yield() {
    if (random_() % 64 == 0) yield();
  }
  void progress() { polls_ = silent_turns_ = 0; }
  bool meet_block(bool mine);
  bool meet_warp(bool mine, std::byte* place, bool stores);

  void load(const std::byte* place, void* to, std::size_t bytes, bool weak);
  void store(std::byte* place, const void* from, std::size_t bytes);
  void release(const void* word);
  void acquire(const void* word);
  // Wider accesses than their address allows are a fault on a GPU.
  void check_alignment(const void* place, std::size_t bytes);
  // At a barrier: what was stored under another address has to be fenced, and what was acquired
  // cannot be read under one any more.
  void meet_aliases();
  // Payload, and payload with a flag beside it.
  void watch_read(const std::byte* place, std::size_t bytes, bool flagged);
  void watch_write(const std::byte* place, std::size_t bytes, bool flagged);
  [[noreturn]] void run_fiber(void* scheduler);

 private:
  void add(const Grid& grid);
  bool arrive(bool idle);
  void start(Fiber& fiber);
  void resume(Fiber& fiber);
  void back_to_scheduler(bool for_ever);
  Fiber& pick();
  void make_ready(Fiber& fiber);
  void leave_ready(Fiber& fiber);
  void move_line(std::uint32_t first);
  void drain_some(Block& block, Fiber& fiber);
  void drain_line(Block& block, std::size_t pick);
  bool drain_everything();
  void end_grid();
  void note(std::string_view what, std::string_view does, const void* place, std::string_view why);
  std::string report(std::string_view why) const;

  const MachineOptions options_;
  QuickRandom random_;
  std::deque<Grid> arrived_;  // grids that came later
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> open_blocks_;  // of grids that have not ended, or whose end nobody hears of
  RaceWatch watch_;
  LineMemory line_memory_;
  std::string wrong_;                                  // the first race or misaligned access
  std::map<const Grid*, std::uint64_t> grid_threads_;  // that have not ended
  std::vector<Fiber*> ready_;
  Fiber* running_ = nullptr;
  std::size_t live_ = 0;
  std::uint64_t switches_ = 0;
  std::uint64_t polls_ = 0;  // since the last progress
  int silent_turns_ = 0;
  Block* behind_ = nullptr;  // not scheduled for a while
  std::uint64_t behind_until_ = 0;
  void* scheduler_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
  void* scheduler_fake_stack_ = nullptr;
};

extern Machine* machine;  // the one that runs

}  // namespace gyre::tests
