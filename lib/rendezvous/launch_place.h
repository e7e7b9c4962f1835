// LaunchPlace: what the variables of a launcher say of this process, as a value.
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/trust/unique_id.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gyre::rendezvous {

// What a launcher said of this process.
struct LaunchPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool several_hosts = false;  // the launcher said so; local_size may still be unknown to it
  bool one_host = false;       // the launcher said so
  // How many meetings of this process have succeeded (the caller counts): a second gyreCommInitEnv
  // meets under another name, so that it cannot find what is left of the first.
  int earlier_exchanges = 0;
  // With which this process has tried to join in vain, since its last meeting that succeeded.
  std::optional<trust::UniqueId> tried;
  std::string source;  // which variables said so, for the log: "torchrun (RANK, WORLD_SIZE)"
  std::string job_id;  // equal on all ranks of a job, different for two jobs of a user if possible
  // The key-value space of the launcher that said so (launcher_line.h), if it has one: PMI's
  // version 1 at a descriptor, or PMIx.
  int pmi_descriptor = -1;
  bool has_pmix = false;
};

// Reads Gyre's own variables, then torchrun's, Open MPI's, MPICH's and Intel MPI's, MVAPICH's,
// PMIx's, Slurm's, and the index in a Job of Kubernetes. Sets that contradict each other are
// reported in `warnings` with the one that was used.
Result<LaunchPlace> read_launch_place(const Settings& settings,
                                      const std::map<std::string, std::string>& environment,
                                      std::vector<std::string>* warnings);
std::map<std::string, std::string> process_environment();

}  // namespace gyre::rendezvous
