#include "lib/plan/algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gyre::plan {

namespace {

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
     "n - 1", SumOrder::own},
    {"tree", rooted_does, build_tree,
     "Two binary trees, each with half of the data, so that a leaf of one is an inner rank of the "
     "other; broadcast and reduce use one binomial tree.",
     "ceil(log2 n)", SumOrder::own},
    {"oneshot", all_reduce_only, build_one_shot,
     "Each rank sends all of its data to all others and sums everything itself.", "1",
     SumOrder::rank},
    {"twoshot", two_shot_does, build_two_shot,
     "Chunk j goes from all ranks straight to rank j, is summed there, and goes straight to all; "
     "broadcast is scatter and all-gather, reduce is reduce-scatter and gather.",
     "1", SumOrder::rank},
    {"doubling", all_reduce_only, build_recursive_doubling,
     "Ranks at distance 1, 2, 4, ... exchange and sum; ranks beyond a power of two stand behind "
     "another.",
     "ceil(log2 n)", SumOrder::rank},
    {"chain", rooted_does, build_chain, "Pieces pass along a line of ranks from or to the root.",
     "n - 1", SumOrder::own},
    {"binomial", rooted_does, build_binomial,
     "A tree in which rank r hangs under r with its lowest bit cleared.", "ceil(log2 n)",
     SumOrder::own},
    {"star", rooted_does, build_star,
     "All ranks talk to the root alone: the parameter server, kept as a baseline.", "1",
     SumOrder::rank},
    {"halving", all_reduce_only, build_halving_doubling,
     "Ranks at distance n/2, n/4, ... give each other half of what they still sum, then share it "
     "the same way back.",
     "ceil(log2 n)", SumOrder::own},
    {"window", scattered_does, build_window,
     "In exchange after exchange with ranks ever nearer, half of a window of chunks is given away "
     "to be summed; the same way back to be shared.",
     "ceil(log2 n)", SumOrder::own},
    {"hierarchical", all_reduce_only, build_hierarchical,
     "Reduce-scatter in each host, all-reduce across hosts, all-gather in each host, by rings.",
     "n - 1", SumOrder::own},
    {"pairwise", all_to_all_only, build_pairwise,
     "In exchange i, ranks meet whose numbers add up to i modulo n.", "0", SumOrder::rank},
    {"bruck", all_to_all_only, build_bruck,
     "In exchange k, the blocks whose way has bit k set go 2^k ranks ahead, in one message.", "0",
     SumOrder::rank, true},
    {"linear", linear_does, build_linear, "The root serves one rank after the other.", "0",
     SumOrder::rank},
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

}  // namespace

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
