// The steps of a ring over any group of ranks, for plans that have rings as phases.
#pragma once

#include "lib/plan/draft.h"

namespace gyre::plan {

struct RingPhases {
  bool sums = true;
  bool shares = true;
  Buffer local = Buffer::input;  // where the own contribution lies
  bool finishes = true;          // whether the sum is complete after this ring
};

Drafts ring_drafts(const Group& group, const RingPhases& phases);

}  // namespace gyre::plan
