// The secret that `gyre run` gives its ranks: sealed memory behind an inherited descriptor, whose
// number is in GYRE_RENDEZVOUS_FD.
#pragma once

#include "lib/base/status.h"
#include "lib/trust/unique_id.h"

namespace gyre::rendezvous {

// The descriptor stays open and its position where it was: ranks of one process share both.
Result<trust::Secret> read_run_secret(int descriptor);

}  // namespace gyre::rendezvous
