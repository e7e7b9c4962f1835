#include "lib/gradsync/roll_call.h"

#include <algorithm>

namespace gyre::gradsync {
namespace {

template <typename Which>
int first_where(const std::vector<RollCallEntry>& entries, const Which& which) {
  const auto found = std::find_if(entries.begin(), entries.end(), which);
  return found == entries.end() ? -1 : static_cast<int>(found - entries.begin());
}

}  // namespace

Result<RollCall> RollCall::hold(gyreComm_t comm, const RollCallEntry& mine) {
  RollCall call;
  GYRE_TRY(all_gather<RollCallEntry>(comm, {&mine, 1}, call.entries_));
  return call;
}

int RollCall::active() const {
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(),
                                        [](const auto& entry) { return entry.joined == 0; }));
}

int RollCall::longest() const {
  const auto fewer = [](const auto& a, const auto& b) { return a.steps_done < b.steps_done; };
  return static_cast<int>(std::max_element(entries_.begin(), entries_.end(), fewer) -
                          entries_.begin());
}

int RollCall::first_missing() const {
  return first_where(entries_, [](const auto& entry) { return entry.missing >= 0; });
}

int RollCall::first_failed() const {
  return first_where(entries_, [](const auto& entry) { return entry.failure != gyreSuccess; });
}

}  // namespace gyre::gradsync
