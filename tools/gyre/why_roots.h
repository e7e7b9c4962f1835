// Where all waits end: of a job whose ranks are judged (why_job.h), the ranks to look at.
#pragma once

#include "tools/gyre/why_job.h"

namespace gyre::tools {

void find_roots(const Sight& sight, JobView& job);
void find_failures(const Sight& sight, JobView& job);

}  // namespace gyre::tools
