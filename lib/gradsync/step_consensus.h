// StepConsensus: the end of each step. Every rank tells all others how its step went. So if one
// rank lacks something, all ranks get an error that names it, and none waits for it.
#pragma once

#include "lib/gradsync/gyre_objects.h"

#include <cstdint>
#include <vector>

namespace gyre::gradsync {

struct ConsensusEntry {
  std::int64_t missing = -1;     // the first tensor whose gradient was never ready; -1: none
  std::uint64_t steps_done = 0;  // that this rank had data for
  std::uint32_t joined = 0;      // 1: it has no more data
  std::int32_t failure = 0;     // gyreResult_t of what went wrong on it: its buckets are not coming
  std::uint64_t trace = 0;      // of what it did that all ranks do alike; a replica's: 1: by a hook
  std::int64_t compute_ns = 0;  // since its last step; 0: there was none
};

class StepConsensus {
 public:
  // Collective. All ranks' entries.
  static Result<StepConsensus> hold(gyreComm_t comm, const ConsensusEntry& mine);

  int active() const;  // ranks that have data
  // The lowest of the ranks that had the most steps.
  int longest() const;
  // The first rank that lacks a gradient, or that has failed; -1: none.
  int first_missing() const;
  int first_failed() const;
  // Whether a rank's trace is not 0.
  bool any_trace() const;
  const ConsensusEntry& of(int rank) const { return entries_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  std::vector<ConsensusEntry> entries_;
};

}  // namespace gyre::gradsync
