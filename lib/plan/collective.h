// Collectives by name.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/plan.h"

#include <string_view>

namespace gyre::plan {

// The one that a text means, however it is written: all_reduce, allreduce, AllReduce, all-reduce.
Result<Collective> parse_collective(std::string_view name);

}  // namespace gyre::plan
