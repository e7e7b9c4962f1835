// The job of gyre link: its ranks meet as those of any job, learn which links the job's plans use,
// measure them in rounds, and tell rank 0.
//
// A communicator breaks on all its ranks when one link does. So each pair has one of its own, and
// so has rank 0 with each other rank. Round i ends at a time that is known in advance: a dead link
// costs its own round alone, and nobody waits for more than that.
#pragma once

#include "lib/base/status.h"
#include "tools/gyre/link_verdict.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace gyre::tools {

struct LinkQuestion {
  bool all_pairs = false;
  double slow_below = 0.5;
  double seconds = 0;  // at most; 0: as many as the rounds take
  std::uint64_t seed = 1;
};

struct LinkAnswer {
  LinkJobFacts facts;
  LinkVerdict verdict;
};

// One rank's part; with rank 0's, the answer. `say`: what people are told meanwhile, a line each.
Result<std::optional<LinkAnswer>> measure_links(const LinkQuestion& question,
                                                const std::function<void(const std::string&)>& say);

}  // namespace gyre::tools
