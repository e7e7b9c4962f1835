// The report of `gyre why` about jobs, for programs.
#pragma once

#include "tools/gyre/why_job.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace gyre::tools {

// The fields and their meanings, for --help.
extern const char* const json_schema;

nlohmann::ordered_json to_json(const Sight& sight, const std::vector<JobView>& jobs,
                               const std::vector<std::string>& notes);

}  // namespace gyre::tools
