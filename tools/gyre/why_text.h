// The report of `gyre why` about a job, for people.
#pragma once

#include "tools/gyre/why_job.h"

#include <cstdint>
#include <string>

namespace gyre::tools {

// 0 if the end lies before.
double seconds_between(std::int64_t from_ns, std::int64_t to_ns);
std::string to_text(const Sight& sight, const JobView& job);
// One sentence on one root.
std::string explain_root(const Sight& sight, const JobView& job, const Root& root);

}  // namespace gyre::tools
