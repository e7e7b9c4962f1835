// Rendezvous: how a process that was only started learns its rank and meets the others
// (gyreCommInitEnv), and how an id travels through a caller's store (gyreCommInitStore). It reads
// launchers' variables and passes a UniqueId. The ranks then join through the control plane.
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/control/control.h"

#include <functional>
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
};

// Reads Gyre's own variables, then torchrun's, Open MPI's, MPICH's and Intel MPI's, MVAPICH's,
// PMIx's, Slurm's. Sets that contradict each other are reported in `warnings` with the one that was
// used.
Result<LaunchPlace> read_launch_place(const Settings& settings,
                                      const std::map<std::string, std::string>& environment,
                                      std::vector<std::string>* warnings);
std::map<std::string, std::string> process_environment();

// Who may join by an id that is passed on by the caller's own means. A launcher that started
// several ranks, all on this host, is believed, unless the communicator has more ranks (0: unknown)
// or GYRE_SOCKET_IFNAME says where other hosts come in.
control::Audience audience_of_launch(const Settings& settings,
                                     const std::map<std::string, std::string>& environment,
                                     int ranks);

// Gets the job's UniqueId to this rank; rank 0 makes it. In this order, by what is set:
//
//   GYRE_RENDEZVOUS_FD       the sealed memory with a secret that `gyre run` lets ranks inherit:
//   each
//                            rank makes the id from it (with GYRE_RENDEZVOUS_ADDRESS: as below)
//   GYRE_RENDEZVOUS_FILE     a file of mode 0600; rank 0 removes it when the time to meet is over,
//                            and replaces what a dead job left on its host
//   GYRE_RENDEZVOUS_ADDRESS  rank 0 listens there; ranks prove that they have the bytes of
//                            GYRE_RENDEZVOUS_SECRET_FILE, and the id travels under TLS
//   nothing, one host        an abstract socket named after user and job; the kernel says that both
//                            ends are ours
//
// Blocks the others until rank 0 is there or settings.init_timeout_s have passed; rank 0 goes on at
// once, and its control thread answers.
Result<trust::UniqueId> meet(control::ControlPlane& plane, const Settings& settings,
                             const LaunchPlace& place);

// The same through a key-value store: rank 0 sets, the others get (and wait).
struct Store {
  std::function<Status(const std::string& key, const std::vector<std::uint8_t>& value)> set;
  std::function<Result<std::vector<std::uint8_t>>(const std::string& key, std::int64_t timeout_ms)>
      get;
};
Result<trust::UniqueId> exchange_id_through_store(control::ControlPlane& plane, const Store& store,
                                                  const std::string& key, int rank,
                                                  control::Audience audience,
                                                  const Settings& settings);

}  // namespace gyre::rendezvous
