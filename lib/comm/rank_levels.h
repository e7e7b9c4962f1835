// How the ranks of a communicator lie in the parts of their machines, and by what they reach each
// other there: the facts on which the tuner chooses. All ranks find the same.
#pragma once

#include "lib/comm/rank_layout.h"
#include "lib/control/membership.h"
#include "lib/links/transport_registry.h"
#include "lib/tune/level.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

// What this rank's transports carry to other hosts, for the message that it joins with:
// "rdma=50000,tcp=1250", in megabytes per second; those that nobody knows are left out.
std::string wires_text(const TransportList& transports);
// 0: it does not say, or the text is malformed.
std::int64_t wire_megabytes_per_s(std::string_view wires, std::string_view transport);

// By host memory: `maps_all` says whether it reaches between any two of them, and `maps_host`
// whether it does between two of one host.
std::vector<tune::Level> find_levels(const RankLayout& layout, const control::Roster& roster,
                                     bool maps_all, bool maps_host);

// The same ranks by the memory of their GPUs: where it reaches between any two of them, and where
// host memory passes the bytes on.
std::vector<tune::Level> on_gpus(std::vector<tune::Level> levels, bool reaches_all);

}  // namespace gyre::comm
