#include "lib/comm/pair_log.h"

#include "lib/control/cause.h"
#include "lib/links/candidates.h"
#include "lib/topology/locality.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gyre::comm {
namespace {

// Beyond it nobody reads on.
constexpr std::size_t max_lines = 64;

}  // namespace

std::string PairLog::text(int rank, int peer) const {
  const auto place_of = [&](int one) {
    const topology::HostedLocality& where = layout_.of(one);
    const bool is_here = machine_ != nullptr && where.host == layout_.of(rank).host;
    return topology::RankLocation{where.host, is_here ? machine_ : nullptr,
                                  is_here ? topology::find_place(*machine_, where.locality) : 0};
  };
  const topology::RankLocation from = place_of(rank), to = place_of(peer);
  return candidates_text(links_.candidates(
      peer, [&](topology::Medium medium) { return topology::find_path(from, to, medium); }));
}

std::vector<std::string> PairLog::lines(int rank, int size) const {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // peers by their text
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    std::string said = text(rank, peer);
    const auto known = std::ranges::find(groups, said, [](const auto& one) { return one.first; });
    if (known != groups.end())
      known->second.push_back(peer);
    else
      groups.emplace_back(std::move(said), std::vector<int>{peer});
  }
  std::vector<std::string> all;
  for (const auto& [said, peers] : groups) {
    if (all.size() == max_lines) {
      all.push_back(fmt::format("rank {}: {} lines more", rank, groups.size() - max_lines));
      break;
    }
    all.push_back(fmt::format("rank {} to {}: {}", rank, control::rank_text(peers), said));
  }
  return all;
}

}  // namespace gyre::comm
