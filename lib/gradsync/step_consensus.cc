#include "lib/gradsync/step_consensus.h"

#include <algorithm>

namespace gyre::gradsync {
namespace {

template <typename Which>
int first_where(const std::vector<ConsensusEntry>& entries, const Which& which) {
  const auto found = std::find_if(entries.begin(), entries.end(), which);
  return found == entries.end() ? -1 : static_cast<int>(found - entries.begin());
}

}  // namespace

Result<StepConsensus> StepConsensus::hold(gyreComm_t comm, const ConsensusEntry& mine) {
  StepConsensus call;
  GYRE_TRY(all_gather<ConsensusEntry>(comm, {&mine, 1}, call.entries_));
  return call;
}

int StepConsensus::active() const {
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                        [](const auto& entry) { return entry.joined == 0; }));
}

int StepConsensus::longest() const {
  const auto fewer = [](const auto& a, const auto& b) { return a.steps_done < b.steps_done; };
  return static_cast<int>(std::max_element(entries_.begin(), entries_.end(), fewer) -
                          entries_.begin());
}

int StepConsensus::first_missing() const {
  return first_where(entries_, [](const auto& entry) { return entry.missing >= 0; });
}

bool StepConsensus::any_trace() const {
  return first_where(entries_, [](const auto& entry) { return entry.trace != 0; }) >= 0;
}

int StepConsensus::first_failed() const {
  return first_where(entries_, [](const auto& entry) { return entry.failure != gyreSuccess; });
}

}  // namespace gyre::gradsync
