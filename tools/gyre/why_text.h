// The report of `gyre why` about a job, for people.
#pragma once

#include "tools/gyre/why_job.h"

#include <string>

namespace gyre::tools {

std::string to_text(const Sight& sight, const JobView& job);
// One sentence on one root.
std::string explain_root(const Sight& sight, const JobView& job, const Root& root);

}  // namespace gyre::tools
