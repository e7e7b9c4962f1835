#include "tools/gyre/link_rounds.h"

#include <algorithm>
#include <tuple>

namespace gyre::tools {
namespace {

// In which round of a tournament of all ranks, by the circle method, two of them meet: each round
// is a perfect matching, so that all pairs of one host take the fewest rounds that there can be.
int tournament_round(const LinkPair& pair, int ranks) {
  const int last = ranks + ranks % 2 - 1;
  return pair.high == last ? 2 * pair.low % last : (pair.low + pair.high) % last;
}

}  // namespace

LinkRounds find_rounds(std::vector<LinkPair> pairs, const std::vector<int>& host_of_rank) {
  const int ranks = static_cast<int>(host_of_rank.size());
  std::ranges::sort(pairs, {}, [&](const LinkPair& pair) {
    return std::tuple(tournament_round(pair, ranks), pair);
  });
  LinkRounds rounds;
  std::vector<std::vector<bool>> ranks_of, hosts_of;  // that are taken, by round
  for (const LinkPair& pair : pairs) {
    const auto low = static_cast<std::size_t>(pair.low), high = static_cast<std::size_t>(pair.high);
    const auto host = static_cast<std::size_t>(host_of_rank[low]);
    const auto other_host = static_cast<std::size_t>(host_of_rank[high]);
    std::size_t round = 0;
    const auto is_taken = [&] {
      if (ranks_of[round][low] || ranks_of[round][high]) return true;
      return host != other_host && (hosts_of[round][host] || hosts_of[round][other_host]);
    };
    while (round < rounds.size() && is_taken()) ++round;
    if (round == rounds.size()) {
      rounds.emplace_back();
      ranks_of.emplace_back(host_of_rank.size());
      hosts_of.emplace_back(host_of_rank.size());
    }
    rounds[round].push_back(pair);
    ranks_of[round][low] = ranks_of[round][high] = true;
    if (host != other_host) hosts_of[round][host] = hosts_of[round][other_host] = true;
  }
  return rounds;
}

}  // namespace gyre::tools
