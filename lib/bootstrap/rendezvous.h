// Rendezvous: how a process that was only started learns its rank and meets the others (InitEnv),
// and how an id travels through a caller's store (InitStore). It reads launchers' variables and
// passes a UniqueId; the meeting itself is the control plane's.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/bootstrap/control.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gyre::bootstrap {

// What a launcher said of this process.
struct LaunchPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool several_hosts = false;  // the launcher said so; local_size may still be unknown to it
  // How many meetings of this process have succeeded (the caller counts): a second gyreCommInitEnv
  // meets under another name, so that it cannot find what is left of the first.
  int earlier_meetings = 0;
  std::string source;  // which variables said so, for the log: "torchrun (RANK, WORLD_SIZE)"
  std::string job_id;  // equal on all ranks of a job, different for two jobs of a user if possible
};

// Reads Gyre's own variables, then torchrun's, Open MPI's, MPICH's and Intel MPI's, MVAPICH's,
// PMIx's, Slurm's. Sets that contradict each other are reported in `warnings` with the one that was
// used.
Result<LaunchPlace> read_launch_place(const Settings& settings,
                                      const std::map<std::string, std::string>& environment,
                                      std::vector<std::string>* warnings);
std::map<std::string, std::string> process_environment();

// Gets the job's UniqueId to this rank: gyre run's inherited descriptor, a 0600 file, an address
// with a secret file, or (one host) an abstract socket keyed by user and job. Rank 0 makes it.
// Blocks until it is there or settings.init_timeout_s have passed.
Result<trust::UniqueId> meet(ControlPlane& plane, const Settings& settings,
                             const LaunchPlace& place);

// The same through a key-value store: rank 0 sets, the others get (and wait).
struct Store {
  std::function<Status(const std::string& key, const std::vector<std::uint8_t>& value)> set;
  std::function<Result<std::vector<std::uint8_t>>(const std::string& key, std::int64_t timeout_ms)>
      get;
};
Result<trust::UniqueId> meet_through_store(ControlPlane& plane, const Store& store,
                                           const std::string& key, int rank,
                                           std::int64_t timeout_ms);

// The sealed memory file that `gyre run` lets every rank inherit (GYRE_RENDEZVOUS_FD): 8 bytes of
// magic, the secret, the job's token. Not closed on exec.
struct RunSecret {
  trust::Secret secret{};
  trust::Token job{};
};
Result<FileDescriptor> make_run_descriptor(const RunSecret& run);
Result<RunSecret> read_run_descriptor(int descriptor);

}  // namespace gyre::bootstrap
