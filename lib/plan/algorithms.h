// The algorithms: a table of what each can do, and the request for a plan. A new algorithm is one
// builder file and one line in algorithms.cc.
#pragma once

#include "lib/base/status.h"
#include "lib/plan/plan.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::plan {

struct PlanRequest {
  Collective collective = Collective::all_reduce;
  std::int32_t rank_count = 1;
  std::int32_t rank = 0;
  std::int32_t root = 0;            // of broadcast, reduce, gather, scatter
  std::vector<std::int32_t> order;  // ranks along a ring, the same on all; empty: 0, 1, ...
  // Of an all-reduce by trees: each tree as the parents of the ranks, -1 for the root's, and the
  // same on all. The trees share the data equally; a sum is rounded as often as a tree has levels.
  // Empty: the double binary tree over 0, 1, ...
  std::vector<std::vector<std::int32_t>> trees;
  std::int32_t hosts = 1;  // of hierarchical: as many ranks on each, host by host in `order`
  std::int32_t grain = 0;  // of halving: most chunks in a message; 0: no limit
};

// In which order operands meet. All ranks hold the same bits in any case.
enum class SumOrder : std::uint8_t {
  rank,  // rank order: the same whatever the placement
  own,   // fixed for (algorithm, rank count, order), but not rank order
};

// How often a sum of floats over n ranks is rounded.
enum class Roundings : std::uint8_t { none, one, each_level, each_rank };
std::string_view roundings_text(Roundings roundings);  // in terms of n, for people
std::uint32_t count_roundings(Roundings roundings, std::int32_t ranks);

struct Algorithm {
  std::string_view name;  // as in GYRE_ALGO
  std::span<const Collective> collectives;
  PlanParts (*build)(const PlanRequest&);
  std::string_view idea;  // what it does, one sentence
  Roundings roundings;    // at most
  SumOrder order;
  bool equal_counts = false;  // it needs blocks of one size
  // Its plans follow `order` round a ring, or from the root on along one. So channels that share
  // the data may each have another order.
  bool follows_ring = false;

  bool does(Collective collective) const;
};

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);  // null if there is none

// One rank's plan, or why there is none.
Result<Plan> build_plan(const Algorithm& algorithm, const PlanRequest& request);
Result<Plan> build_plan(std::string_view algorithm, const PlanRequest& request);
// The plans of all ranks, by rank; request.rank is not read.
Result<std::vector<Plan>> build_plans(const Algorithm& algorithm, PlanRequest request);

// The builders, each in the file of its name.
PlanParts build_ring(const PlanRequest& request);
PlanParts build_tree(const PlanRequest& request);
PlanParts build_chain(const PlanRequest& request);
PlanParts build_binomial(const PlanRequest& request);
PlanParts build_star(const PlanRequest& request);
PlanParts build_one_shot(const PlanRequest& request);
PlanParts build_two_shot(const PlanRequest& request);
PlanParts build_recursive_doubling(const PlanRequest& request);
PlanParts build_halving_doubling(const PlanRequest& request);
PlanParts build_window(const PlanRequest& request);
PlanParts build_hierarchical(const PlanRequest& request);
PlanParts build_pairwise(const PlanRequest& request);
PlanParts build_bruck(const PlanRequest& request);
PlanParts build_linear(const PlanRequest& request);

}  // namespace gyre::plan
