// Communicators of two ranks, and what the ranks of gyre link say over them: to rank 0 what they
// have measured, and from rank 0 which link to measure again. The link to rank 0 may be a bad one:
// what comes damaged is asked for again.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "tools/gyre/link_values.h"
#include <gyre/gyre.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gyre::tools {

// Ends without waiting for anybody; gyreCommDestroy(release()) parts in peace.
struct PairCommTraits {
  using Handle = gyreComm_t;
  static Handle none() { return nullptr; }
  static void close(Handle comm) { (void)gyreCommAbort(comm); }
};
using OwnedPairComm = Owned<PairCommTraits>;

// Waits `patience_ns` for the other one, in whole seconds and one at least. Each call on the
// communicator then has `call_ns`.
Result<OwnedPairComm> meet_pair(const gyreUniqueId& id, int rank_of_two, std::int64_t patience_ns,
                                std::int64_t call_ns, const std::string& name);

// To the other one of two ranks.
Status send_report(gyreComm_t comm, const std::vector<LinkMeasurement>& links);
// Of rank `from` of a job of `ranks`: links that do not concern it are an error.
Result<std::vector<LinkMeasurement>> receive_report(gyreComm_t comm, int from, int ranks);

// Nothing: all is done.
Status send_errand(gyreComm_t comm, const std::optional<LinkPair>& pair);
Result<std::optional<LinkPair>> receive_errand(gyreComm_t comm, int ranks);

}  // namespace gyre::tools
