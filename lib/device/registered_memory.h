// RegisteredMemory: an allocation of the driver, not of gyreMemAlloc, of which the caller has
// registered a part. All of it is lent, by CUDA IPC, from its first handle to its last. The caller
// frees it, so the lender must know who has it open. A lease tells that, also when borrowers die.
// Messages only tell which ranks they are.
#pragma once

#include "lib/base/status.h"
#include "transports/p2p/memory.h"

#include <cstdint>
#include <optional>
#include <set>

namespace gyre::comm {

// LentRegions' (lent_regions.h), under its lock.
struct RegisteredMemory {
  std::uint64_t begin = 0, bytes = 0;
  std::uint64_t id = 0;             // of the allocation, as the driver counts them
  int handles = 0;                  // not deregistered
  std::optional<p2p::Lease> lease;  // since it was offered
  bool withdrawn = false;           // no kernel here lends it any more, and peers were told
  std::set<int> holders;            // peers that have it open, as they said
  std::set<int> keepers;            // those of them that keep it for graphs
};

// How far it is with memory that was deregistered.
struct Departure {
  bool over = false;          // nobody has it open
  bool is_withdrawn = false;  // as far as this rank can do it alone
  std::set<int> holders, keepers;
};
// Why so many bytes of it may not be freed yet.
Status why_not_free(std::uint64_t bytes, const Departure& departure, Status broken, int rank);

}  // namespace gyre::comm
