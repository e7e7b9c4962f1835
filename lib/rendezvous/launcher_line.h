// LauncherLine: the key-value space that a launcher keeps for the ranks that it started, as MPI
// libraries find each other by. All ranks of the job, and no others, put, fence and get in the same
// order. Both kinds are PMI: version 1 is lines of text at an inherited descriptor, PMIx is a
// library.
#pragma once

#include "lib/base/status.h"
#include "lib/base/wait.h"

#include <memory>
#include <string>

namespace gyre::loaded {
struct Pmix;
}

namespace gyre::rendezvous {

class LauncherLine {
 public:
  virtual ~LauncherLine() = default;
  // Keys and values are words without spaces; a value has at most 1,024 letters.
  virtual Status put(const std::string& key, const std::string& value, Wait& wait) = 0;
  // Until all ranks are here; what they have put can be read then.
  virtual Status fence(Wait& wait) = 0;
  // What rank 0 has put before the last fence.
  virtual Result<std::string> get(const std::string& key, Wait& wait) = 0;
  // The last call, once the process ends: launchers take an end without it for a failure.
  virtual void finish(Wait& wait) = 0;
};

// At the descriptor of PMI_FD: Hydra (MPICH, Intel MPI), and srun --mpi=pmi2.
Result<std::unique_ptr<LauncherLine>> open_pmi(int descriptor, Wait& wait);
// By the library, which knows of the launcher from its own variables.
Result<std::unique_ptr<LauncherLine>> open_pmix(std::unique_ptr<const loaded::Pmix> library);

}  // namespace gyre::rendezvous
