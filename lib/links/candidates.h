// Candidates: the transports for one pair of ranks, best first, and why one of them is taken. The
// log shows them for the ranks of a job (subsystem GRAPH), `gyre topo --why` for those of any
// machine.
#pragma once

#include "lib/links/transport_registry.h"
#include "lib/topology/transport_path.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

struct TransportCandidate {
  std::string_view transport;
  bool reaches = false;
  topology::TransportPath path;  // what it goes through, by the machines
  std::string reason;            // why it reaches the other rank, or why not
};

// What the transports of a process say about a peer, in their order. `find_path` tells what a
// medium is worth; rows without slots are left out.
std::vector<TransportCandidate> find_candidates(
    const TransportList& transports, const trust::ProcessIdentity& peer, bool is_own_rank,
    const std::function<topology::TransportPath(topology::Medium)>& find_path);

// What the machines alone say about two ranks, each in a process of its own; those that the
// settings leave out come last, with the variable that does it.
Result<std::vector<TransportCandidate>> find_candidates(const topology::RankLocation& from,
                                                        const topology::RankLocation& to,
                                                        const Settings& settings);

// The first that reaches the rank; null if there is none.
const TransportCandidate* taken(std::span<const TransportCandidate> candidates);
// "shm: same host and user, CACHE, no figure; then tcp: over loopback; not p2p: ...", the taken one
// first.
std::string candidates_text(std::span<const TransportCandidate> candidates);

}  // namespace gyre::comm
