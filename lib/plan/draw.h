// Plans as a picture.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/plan.h"

#include <span>
#include <string>

namespace gyre::plan {

// An SVG document of all ranks' plans, by rank: ranks are rows, time goes right, an arrow is a
// message, its colour tells its chunk. Pieces and credits are left out: one round, deep FIFOs.
Result<std::string> draw(std::span<const Plan> plans);

}  // namespace gyre::plan
