// The graph of waiting ranks, from the observed processes to the ranks at which all waits end. It
// knows no files and no clocks: tests give it Sights of their own.
#pragma once

#include "tools/gyre/why_job.h"

#include <vector>

namespace gyre::tools {

// Communicators that share a process are one job. The jobs point into the sight.
std::vector<JobView> find_jobs(const Sight& sight);

}  // namespace gyre::tools
