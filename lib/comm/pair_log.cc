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

topology::RankLocation location(const topology::HostedLocality& rank,
                                const topology::Topology* machine) {
  const int place = machine == nullptr ? 0 : topology::find_place(*machine, rank.locality);
  return {rank.host, machine, place};
}

std::vector<TransportCandidate> peer_candidates(const Links& links, const RankLayout& layout,
                                                const topology::Topology* machine, int rank,
                                                int peer) {
  const topology::RankLocation from = location(layout.of(rank), machine);
  const topology::HostedLocality& there = layout.of(peer);
  const topology::RankLocation to = location(there, there.host == from.host ? machine : nullptr);
  return links.candidates(
      peer, [&](topology::Medium medium) { return topology::find_path(from, to, medium); });
}

}  // namespace

std::vector<std::string> pair_lines(const Links& links, const RankLayout& layout,
                                    const topology::Topology* machine, int rank, int size) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;  // peers by their text
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    std::string said = candidates_text(peer_candidates(links, layout, machine, rank, peer));
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

std::vector<PeerPath> peer_paths(const Links& links, const RankLayout& layout,
                                 const topology::Topology* machine, int rank, int size) {
  std::vector<PeerPath> paths(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    PeerPath& found = paths[static_cast<std::size_t>(peer)];
    found.host = layout.of(peer).host;
    const std::vector<TransportCandidate> candidates =
        peer_candidates(links, layout, machine, rank, peer);
    const TransportCandidate* const first = taken(candidates);
    if (first == nullptr) continue;
    found.transport = first->transport;
    found.path = first->path;
  }
  return paths;
}

}  // namespace gyre::comm
