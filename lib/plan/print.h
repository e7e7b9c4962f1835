// A plan as lines of moves, for people and for golden files.
#pragma once

#include "lib/plan/cursor.h"
#include "lib/plan/plan.h"

#include <string>

namespace gyre::plan {

// Each byte of the data is one chunk and each chunk one piece: what a plan is, without sizes.
Geometry unit_geometry(const Plan& plan);

// The verbs and flags of a step, in one line: "recv reduce send".
std::string verbs(const Step& step);

// One line a move: which ranks it receives from > which chunks > which ranks it sends to.
std::string to_text(const Plan& plan);

}  // namespace gyre::plan
