// The ways that the tests of collectives send every call: by each algorithm of lib/plan that does
// it, and with each protocol over each transport that has it.
#pragma once

#include "lib/plan/algorithms.h"

#include <string>
#include <vector>

namespace gyre::tests {

struct CallPath {
  const char* transport;
  const char* protocol;
};
// A transport whose slots the peer does not map has simple alone.
inline constexpr CallPath call_paths[] = {
    {"shm", "LL"}, {"shm", "Simple"}, {"shm", "Direct"}, {"tcp", "Simple"}};

enum class Counts { equal, uneven };

// As GYRE_ALGO takes them.
inline std::vector<std::string> algorithms_for(plan::Collective collective,
                                               Counts counts = Counts::equal) {
  std::vector<std::string> names;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    if (algorithm.does(collective) && (counts == Counts::equal || !algorithm.equal_counts))
      names.emplace_back(algorithm.name);
  return names;
}

}  // namespace gyre::tests
