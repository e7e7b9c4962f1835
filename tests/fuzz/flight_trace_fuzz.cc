// A flight file that is given to gyre why --trace. An accepted file becomes a timeline that a
// viewer can open, and no slice of it ends before it begins. Input: the file.
#include "tests/fuzz/input.h"
#include "tools/gyre/flight_trace.h"

#include <nlohmann/json.hpp>

namespace flight_trace_fuzz {

int take_input(const std::uint8_t* data, std::size_t bytes) {
  const std::string text(data, data + bytes);
  const auto trace = gyre::tools::make_trace({text, text});
  if (!trace.ok()) {
    GYRE_DEMAND(gyre::fuzz::is_one_line(trace.status().message()));
    return 0;
  }
  const auto document = nlohmann::json::parse(*trace, nullptr, false);
  GYRE_DEMAND(document.is_object() && document["traceEvents"].is_array());
  for (const auto& event : document["traceEvents"]) {
    GYRE_DEMAND(event["ph"].is_string() && event["name"].is_string());
    if (event["ph"] == "X") GYRE_DEMAND(event["ts"] >= 0.0 && event["dur"] >= 0.0);
  }
  return 0;
}

GYRE_FUZZ_TARGET(flight_trace)

}  // namespace flight_trace_fuzz
