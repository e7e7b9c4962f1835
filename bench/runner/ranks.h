// Ranks: the ranks of a run. processes x threads x ranks per thread, how they find each other, and
// the small exchanges that a benchmark needs beside the measured calls. These use the measured
// communicators themselves, outside the timed parts; ranks on devices have additional communicators
// of host memory for them.
//
//   Seat   one rank, as the header shows it
//   Crew   the ranks of one thread
#pragma once

#include "bench/runner/devices.h"
#include "bench/runner/gyre_calls.h"
#include "bench/runner/memory.h"
#include "bench/runner/options.h"
#include "lib/base/status.h"
#include <gyre/gyre.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::bench {

// The rank that a launcher gave this process, before anything else is known; nothing without one.
std::optional<int> launched_rank();

// The group of a process by GYRE_TESTS_SPLIT or GYRE_TESTS_SPLIT_MASK (or NCCL_TESTS_): 0 without.
Result<int> split_color(int process);
// The same for one text: "AND 3", "%2", "div 4".
Result<int> parse_split(std::string_view text, int process);

enum class Combine { rank0, mean, least, most, sum };

struct Seat {
  int rank = 0;
  int group = 0;
  int pid = 0;
  std::string host;
  DeviceFacts device = {};

  bool shares_with(const Seat& other) const {
    return host == other.host && device.uuid == other.device.uuid;
  }
};

class ThreadRanks {
 public:
  // `beside`: communicators of host memory for the exchanges; empty: the same. `memories`: of each
  // member.
  ThreadRanks(int first_rank, int ranks, std::vector<gyreComm_t> comms,
              std::vector<gyreComm_t> beside, std::span<const std::unique_ptr<Memory>> memories)
      : first_rank_(first_rank),
        ranks_(ranks),
        comms_(std::move(comms)),
        beside_(std::move(beside)),
        memories_(memories) {}

  int size() const { return static_cast<int>(comms_.size()); }
  int first_rank() const { return first_rank_; }
  int ranks() const { return ranks_; }  // of the whole communicator
  gyreComm_t comm(int member) const { return comms_[static_cast<std::size_t>(member)]; }
  Memory& memory(int member) const { return *memories_[static_cast<std::size_t>(member)]; }

  // Nobody leaves before all have come.
  Status barrier();
  // Each value, over the ranks of all threads and processes.
  Status combine(std::span<double> values, Combine how);
  Result<double> combine(double value, Combine how);
  // True if every rank has the same; one of each member.
  Result<bool> equal_everywhere(std::span<const std::uint64_t> of_members);
  // Lets everybody else's calls fail now instead of at their deadline.
  void abort();

 private:
  Status all_reduce(std::span<const std::vector<std::byte>> inputs, std::vector<std::byte>& result,
                    std::size_t count, gyreDataType_t type, gyreRedOp_t op);

  int first_rank_;
  int ranks_;
  std::vector<gyreComm_t> comms_, beside_;
  std::span<const std::unique_ptr<Memory>> memories_;
};

class Ranks {
 public:
  // Meets the other processes, if a launcher started several, and finds the devices.
  static Result<std::unique_ptr<Ranks>> enter(const Options& options, const DriverSource& source);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool speaks() const { return world_process_ == 0; }   // the one process that prints
  int world_process() const { return world_process_; }  // of all groups
  int group() const { return group_; }
  int processes() const { return processes_; }  // of this group
  int process() const { return process_; }
  int total() const { return processes_ * options_.threads * options_.ranks_per_thread; }
  bool on_devices() const { return devices_ != nullptr; }
  // Of this process's ranks.
  std::span<const std::unique_ptr<Memory>> memories() const { return memories_; }
  const Seat& own_seat(std::size_t i) const {
    return seats_[static_cast<std::size_t>(world_process_ * ranks_per_process()) + i];
  }
  // Ranks whose memory is the same as that of an own one's, with it.
  int sharers(std::size_t i) const;
  const std::vector<Seat>& seats() const { return seats_; }  // of all groups

  // The smallest of all processes' values.
  Result<std::uint64_t> smallest(std::uint64_t value);

  // Makes the communicators of all threads (from the main thread), or only the id that
  // `make_thread_ranks` needs with -p 1.
  Status prepare();
  // The ranks of one thread; call it in that thread.
  Result<std::unique_ptr<ThreadRanks>> make_thread_ranks(int thread);

 private:
  explicit Ranks(const Options& options) : options_(options) {}
  Status meet();
  Status split();
  // What the processes tell each other at the beginning.
  struct ProcessRecord {
    std::int32_t pid = 0;
    std::int32_t group = 0;
    char host[56] = {};
  };
  Status gather_processes();
  Status take_devices(const DriverSource& source);
  Status gather_seats();
  Status share_id(gyreUniqueId& id);
  Status join(const gyreUniqueId& id, int first, std::span<gyreComm_t> comms, bool on_devices);
  Status sum_bytes(std::span<std::uint8_t> bytes);
  gyreConfig_t config(int device) const;
  int ranks_per_process() const { return options_.threads * options_.ranks_per_thread; }

  const Options options_;
  int world_processes_ = 1, world_process_ = 0;
  int processes_ = 1, process_ = 0, group_ = 0;
  std::unique_ptr<Devices> devices_;  // null: host memory
  std::vector<DeviceFacts> own_devices_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::vector<ProcessRecord> processes_seen_;
  std::vector<Seat> seats_;
  gyreUniqueId id_{}, beside_id_{};
  gyreComm_t launched_ = nullptr;     // one rank per process, all processes; NULL without launcher
  gyreComm_t of_group_ = nullptr;     // of this group; the same as launched_ without a split
  std::vector<gyreComm_t> measured_;  // of this process, all threads
  std::vector<gyreComm_t> beside_;    // for exchanges, of host memory; empty: the same
};

}  // namespace gyre::bench
