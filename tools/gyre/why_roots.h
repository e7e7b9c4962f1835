// Finds the roots of a job whose ranks are judged (why_job.h): the ranks at which all waits end,
// and which the user should look at.
#pragma once

#include "tools/gyre/why_job.h"

namespace gyre::tools {

void find_roots(const Sight& sight, JobView& job);
void find_failures(const Sight& sight, JobView& job);

}  // namespace gyre::tools
