// Finds the moves that NVLink's switch can do, if the buffers of all ranks are bound to one
// multicast group. The switch sums what one load reads from every rank, and writes one store to
// every rank. The choice follows from the lane and from how messages are delivered, so plans have
// no word for it. The kernels (kernels/cuda/multicast.h) decide alike.
#pragma once

#include "lib/plan/cursor.h"
#include "lib/plan/step.h"

namespace gyre::plan {

// As far as this end can tell: what comes must be pulled from the inputs of all others besides.
bool takes_from_all(const Lane& lane, const Move& move);
// Writes what is final to its place in the outputs of all.
bool sends_to_all(const Lane& lane, const Move& move);

}  // namespace gyre::plan
