// A timeline of flights for chrome://tracing and ui.perfetto.dev. The trace has a process for each
// process, and in it a thread for each rank of a communicator. A second thread shows its sends and
// receives, which run beside collectives. An operation is a slice. In it lie slices for its long
// waits and for its work between them. An arrow leads to the end of a wait from the operation of
// the rank that it waited for.
#pragma once

#include "lib/base/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace gyre::tools {

// `texts` are as flight_text (lib/base/flight_file.h) makes them. An error says which line of which
// text is no such thing.
Result<std::string> make_trace(const std::vector<std::string>& texts);

}  // namespace gyre::tools
