// Rendezvous: how a process that was only started learns its rank and meets the others
// (gyreCommInitEnv), and how an id travels through a caller's store (gyreCommInitStore). It reads
// launchers' variables and passes a UniqueId. The ranks then join through the control plane.
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/control/control.h"
#include "lib/rendezvous/key_value_store.h"
#include "lib/rendezvous/launch_place.h"

#include <map>
#include <string>

namespace gyre::rendezvous {

class LauncherStore;

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
//   nothing, several hosts   the launcher's own key-value space, if it has one; as a store below
//
// Blocks the others until rank 0 is there or settings.init_timeout_s have passed; rank 0 goes on at
// once, and its control thread answers. Through the launcher all wait for all. Without a `launcher`
// none is asked.
Result<trust::UniqueId> meet(control::ControlPlane& plane, const Settings& settings,
                             const LaunchPlace& place, LauncherStore* launcher = nullptr);

// The same through a key-value store: rank 0 sets, the others get (and wait).
Result<trust::UniqueId> exchange_id_through_store(control::ControlPlane& plane, const Store& store,
                                                  const std::string& key, int rank,
                                                  control::Audience audience,
                                                  const Settings& settings);

}  // namespace gyre::rendezvous
