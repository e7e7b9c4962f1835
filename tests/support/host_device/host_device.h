// The simulated device, the second machine behind kernels/cuda/device.h. The grids of all ranks run
// in this process; each CUDA thread is a fiber. A seeded scheduler picks the next fiber at every
// poll, barrier and fence, and sometimes at an access; whole blocks fall behind at random. Stores
// may be delayed: other threads of the block see them at a barrier, other blocks at a release, or
// earlier one by one in random order. A weak load may return what the block saw before, until it
// acquires. A load of a line loads its parts in any order. A store to a multicast group without an
// alias fence is lost, and a load without one gives garbage.
#pragma once

#include "kernels/cuda/device.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gyre::tests {

struct Grid {
  int rank = 0;
  std::uint32_t blocks = 1;
  std::uint32_t threads = 32;  // of a block; whole warps
  std::function<void()> kernel;
  // The host, when the last thread has ended; it knows what all of this grid's blocks knew.
  std::function<void()> on_end = nullptr;
  int device = 0;  // which `reaches` may ask
};

// Memory of several ranks that has one more address.
struct MulticastGroup {
  const std::byte* address = nullptr;  // leads nowhere by itself
  std::size_t bytes = 0;
  std::vector<std::byte*> members;  // by rank
};

struct MachineOptions {
  std::uint64_t seed = 1;
  bool delayed_stores = true;
  bool stale_loads = true;
  bool whole_lines = true;    // 128-byte lines arrive at once
  bool torn_loads = true;     // ... but each part of one is loaded at a time of its own
  bool watches_races = true;  // not with arrivals: a stream's order is none that it knows
  std::uint64_t max_switches = 200'000'000;
  std::vector<MulticastGroup> groups = {};
  bool real_clock = false;  // clock_ns is the host's; else it counts switches
  // Told of each access to memory; null: nobody is.
  std::function<void(const Grid& grid, const void* place)> reaches = nullptr;
  // Grids that have come meanwhile: asked now and then, and whenever nobody can go on (`idle`; it
  // may wait a moment then). A standstill is then no deadlock, as somebody may still come.
  std::function<std::vector<Grid>(bool idle)> arrivals = nullptr;
};

// Runs the grids together until all have ended. Empty; or why they never would, a turn of all
// threads without progress and what each of them waits for; or a race: payload that one block took
// from another without a release and an acquire between; or an access wider than its address
// allows.
std::string run_grids(const std::vector<Grid>& grids, const MachineOptions& options);

// For a thread of a grid that plays the host: others go on, and time passes.
void let_others_run();
// For on_end: the host writes here, at once. A race if another grid's access may still be to come.
void host_fills(std::byte* place, std::size_t bytes, std::byte value);

// Loads and stores of groups in the last run, and stores that release.
std::uint64_t multicast_accesses();
std::uint64_t releases();

}  // namespace gyre::tests
