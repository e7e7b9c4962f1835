#include "lib/device/registered_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

namespace gyre::comm {
namespace {

std::string shown(const std::set<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Status why_not_free(std::uint64_t bytes, const Departure& departure, Status broken, int rank) {
  const std::string still = fmt::format(
      "{} bytes of registered memory may not be freed yet, and their handle stays valid", bytes);
  if (!broken.ok())
    return std::move(broken).while_doing(fmt::format(
        "{}: other processes have them open until their communicators are destroyed", still));
  if (!departure.is_withdrawn)
    return Status(Code::InProgress,
                  fmt::format("{}: calls of this rank that may use them have not ended", still))
        .blame({rank});
  const std::set<int>& in_graphs = departure.keepers;
  if (!in_graphs.empty())
    return Status(Code::InProgress,
                  fmt::format("{}: CUDA graphs hold calls of {} and may use them at any time: call "
                              "gyreCommDeregister again when the communicators and graphs there "
                              "have been destroyed",
                              still, shown(in_graphs)))
        .blame({in_graphs.begin(), in_graphs.end()});
  const std::set<int>& who = departure.holders;
  return Status(Code::InProgress,
                fmt::format("{}: {} had unfinished calls, which may wait for rank {}: make the "
                            "next calls, then call gyreCommDeregister again",
                            still, who.empty() ? "another process" : shown(who), rank))
      .blame({who.begin(), who.end()});
}

}  // namespace gyre::comm
