// The rank states of a process as text for Prometheus (exposition format 0.0.4). It is made from
// values, so that tests need no process.
#pragma once

#include "lib/base/state_page_reader.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::comm {

// A label's value between its quotes: printable ASCII, with \\, \" and \n escaped.
std::string label_value(std::string_view text);

// Times of waits end at `now_ns`.
std::string metrics_text(std::string_view version, const std::vector<RankSummary>& heads,
                         std::int64_t now_ns);

}  // namespace gyre::comm
