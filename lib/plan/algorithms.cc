#include "lib/plan/algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

namespace gyre::plan {

namespace {

constexpr std::size_t max_trees = 64;  // each has a channel

constexpr Collective ring_does[] = {Collective::all_reduce, Collective::reduce_scatter,
                                    Collective::all_gather, Collective::broadcast,
                                    Collective::reduce};
constexpr Collective rooted_does[] = {Collective::all_reduce, Collective::broadcast,
                                      Collective::reduce};
constexpr Collective scattered_does[] = {Collective::all_reduce, Collective::reduce_scatter,
                                         Collective::all_gather};
constexpr Collective two_shot_does[] = {Collective::all_reduce, Collective::reduce_scatter,
                                        Collective::all_gather, Collective::broadcast,
                                        Collective::reduce};
constexpr Collective all_reduce_only[] = {Collective::all_reduce};
constexpr Collective all_to_all_only[] = {Collective::all_to_all};
constexpr Collective linear_does[] = {Collective::gather, Collective::scatter};

constexpr Algorithm table[] = {
    {"ring", ring_does, build_ring,
     "Each chunk goes round the ring once to be summed and once to be shared; broadcast and reduce "
     "pass pieces along a chain.",
     Roundings::each_rank, SumOrder::own, false, true},
    {"tree", rooted_does, build_tree,
     "Two binary trees, each with half of the data, so that a leaf of one is an inner rank of the "
     "other; broadcast and reduce use one binomial tree.",
     Roundings::each_level, SumOrder::own},
    {"oneshot", all_reduce_only, build_one_shot,
     "Each rank sends all of its data to all others and sums everything itself.", Roundings::one,
     SumOrder::rank},
    {"twoshot", two_shot_does, build_two_shot,
     "Chunk j goes from all ranks straight to rank j, is summed there, and goes straight to all; "
     "broadcast is scatter and all-gather, reduce is reduce-scatter and gather.",
     Roundings::one, SumOrder::rank},
    {"doubling", all_reduce_only, build_recursive_doubling,
     "Ranks at distance 1, 2, 4, ... exchange and sum; ranks beyond a power of two stand behind "
     "another.",
     Roundings::each_level, SumOrder::rank},
    {"chain", rooted_does, build_chain, "Pieces pass along a line of ranks from or to the root.",
     Roundings::each_rank, SumOrder::own, false, true},
    {"binomial", rooted_does, build_binomial,
     "A tree in which rank r hangs under r with its lowest bit cleared.", Roundings::each_level,
     SumOrder::own},
    {"star", rooted_does, build_star,
     "All ranks talk to the root alone: the parameter server, kept as a baseline.", Roundings::one,
     SumOrder::rank},
    {"halving", all_reduce_only, build_halving_doubling,
     "Ranks at distance n/2, n/4, ... exchange halves of the part that they still sum, then share "
     "the result in reverse order.",
     Roundings::each_level, SumOrder::own},
    {"window", scattered_does, build_window,
     "Each exchange is with a nearer rank and gives half of a window of chunks away to be summed; "
     "the results are shared in reverse order.",
     Roundings::each_level, SumOrder::own},
    {"hierarchical", all_reduce_only, build_hierarchical,
     "Reduce-scatter in each host, all-reduce across hosts, all-gather in each host, by rings.",
     Roundings::each_rank, SumOrder::own},
    {"pairwise", all_to_all_only, build_pairwise,
     "In exchange i, ranks meet whose numbers add up to i modulo n.", Roundings::none,
     SumOrder::rank},
    {"bruck", all_to_all_only, build_bruck,
     "In exchange k, the blocks whose distance has bit k set go 2^k ranks ahead, in one message.",
     Roundings::none, SumOrder::rank, true},
    {"linear", linear_does, build_linear, "The root serves one rank after the other.",
     Roundings::none, SumOrder::rank},
};

Status check_order(const PlanRequest& request) {
  if (request.order.empty()) return {};
  std::vector<std::int32_t> sorted = request.order;
  std::sort(sorted.begin(), sorted.end());
  bool each_once = sorted.size() == static_cast<std::size_t>(request.rank_count);
  for (std::size_t i = 0; each_once && i < sorted.size(); ++i) {
    each_once = sorted[i] == static_cast<std::int32_t>(i);
  }
  if (each_once) return {};
  return invalid_argument(fmt::format("order [{}] does not name each of {} ranks once",
                                      fmt::join(request.order, ", "), request.rank_count));
}

// Whether each rank comes to a root by its parents.
Status check_tree(const std::vector<std::int32_t>& parents, std::int32_t rank_count) {
  const auto wrong = [&](std::string_view what) {
    return invalid_argument(fmt::format("parents [{}] {}", fmt::join(parents, ", "), what));
  };
  if (parents.size() != static_cast<std::size_t>(rank_count))
    return wrong(fmt::format("are not those of {} ranks", rank_count));
  if (std::count(parents.begin(), parents.end(), -1) != 1)
    return wrong("have not exactly one root");
  std::vector<bool> hangs(parents.size());
  for (std::size_t rank = 0; rank < parents.size(); ++rank) {
    std::vector<std::size_t> way;
    for (std::size_t at = rank; !hangs[at];) {
      way.push_back(at);
      const std::int32_t parent = parents[at];
      if (parent < -1 || parent >= rank_count) return wrong("name a rank that does not exist");
      if (way.size() > parents.size()) return wrong("go in a circle");
      if (parent < 0) break;
      at = static_cast<std::size_t>(parent);
    }
    for (const std::size_t at : way) hangs[at] = true;
  }
  return {};
}

}  // namespace

std::string_view roundings_text(Roundings roundings) {
  constexpr std::string_view texts[] = {"0", "1", "ceil(log2 n)", "n - 1"};
  return texts[static_cast<int>(roundings)];
}

std::uint32_t count_roundings(Roundings roundings, std::int32_t ranks) {
  const auto others = static_cast<std::uint32_t>(ranks - 1);
  switch (roundings) {
    case Roundings::none:
      return 0;
    case Roundings::one:
      return others > 0 ? 1 : 0;
    case Roundings::each_level:
      return static_cast<std::uint32_t>(std::bit_width(others));
    case Roundings::each_rank:
      return others;
  }
  return 0;
}

bool Algorithm::does(Collective collective) const {
  return std::find(collectives.begin(), collectives.end(), collective) != collectives.end();
}

std::span<const Algorithm> algorithms() { return table; }

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm& algorithm : table) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

Result<Plan> build_plan(const Algorithm& algorithm, const PlanRequest& request) {
  const std::int32_t n = request.rank_count;
  if (n < 1 || static_cast<std::uint32_t>(n) > max_chunks) {
    return invalid_argument(fmt::format("a plan for {} ranks", n));
  }
  if (request.rank < 0 || request.rank >= n || request.root < 0 || request.root >= n) {
    return invalid_argument(
        fmt::format("rank {} or root {} is not one of {} ranks", request.rank, request.root, n));
  }
  if (!algorithm.does(request.collective)) {
    return invalid_argument(
        fmt::format("{} does no {}", algorithm.name, collective_name(request.collective)));
  }
  GYRE_TRY(check_order(request));
  if (request.trees.size() > max_trees)
    return invalid_argument(
        fmt::format("{} trees; the most are {}", request.trees.size(), max_trees));
  for (const std::vector<std::int32_t>& parents : request.trees) GYRE_TRY(check_tree(parents, n));
  if (request.hosts < 1 || n % request.hosts != 0 || request.grain < 0) {
    return invalid_argument(fmt::format("{} ranks on {} hosts, in messages of {} chunks", n,
                                        request.hosts, request.grain));
  }
  PlanParts parts = algorithm.build(request);
  parts.algorithm = algorithm.name;
  parts.equal_chunks = algorithm.equal_counts;
  return Plan(std::move(parts));
}

Result<Plan> build_plan(std::string_view algorithm, const PlanRequest& request) {
  const Algorithm* found = find_algorithm(algorithm);
  if (found == nullptr) {
    return invalid_argument(fmt::format("there is no algorithm \"{}\"", algorithm));
  }
  return build_plan(*found, request);
}

Result<std::vector<Plan>> build_plans(const Algorithm& algorithm, PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < std::max(request.rank_count, 1); ++request.rank) {
    GYRE_ASSIGN(Plan plan, build_plan(algorithm, request));
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace gyre::plan
