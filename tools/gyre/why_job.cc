#include "tools/gyre/why_job.h"

#include <algorithm>

namespace gyre::tools {

std::string_view standing_name(RankStanding standing) {
  constexpr std::string_view names[] = {"waits", "joins",      "elsewhere", "computes",
                                        "works", "stopped",    "dead",      "failed",
                                        "left",  "other_host", "closed",    "not_there"};
  return names[static_cast<int>(standing)];
}

std::string_view root_kind_name(RootKind kind) {
  constexpr std::string_view names[] = {"rank", "crossed", "differs", "apart", "circle", "failure"};
  return names[static_cast<int>(kind)];
}

std::string_view verdict_name(JobView::Verdict verdict) {
  constexpr std::string_view names[] = {"idle", "running", "waiting", "failed"};
  return names[static_cast<int>(verdict)];
}

const JobView::CommunicatorView& JobView::communicator(std::uint64_t id) const {
  return *std::ranges::find_if(communicators, [&](const auto& one) { return one.id == id; });
}

}  // namespace gyre::tools
