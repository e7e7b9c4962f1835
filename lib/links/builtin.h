// The explicit list of transports that this build has, best first.
#pragma once

#include "lib/base/settings.h"
#include "lib/links/links.h"

namespace gyre::comm {

// Filtered and ordered by GYRE_TRANSPORT and GYRE_SHM_DISABLE. The list's order travels in
// endpoints, so it has to be the same on all ranks; init compares it.
Result<TransportList> make_transports(const Settings& settings,
                                      const transport::Surroundings& surroundings);
std::string transport_names(const TransportList& transports);

}  // namespace gyre::comm
