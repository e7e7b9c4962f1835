// A timeline of flights for chrome://tracing and ui.perfetto.dev: a process of the trace for each
// process, and a thread of it for each rank of a communicator (a second one for its sends and
// receives, which go on beside collectives). An operation is a slice; in it lie slices for its long
// waits and for what it does between them; an arrow leads to the end of a wait from the operation
// of the rank that it waited for.
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
