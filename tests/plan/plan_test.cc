// lib/plan: the form of plans and of their text. verify_test.cc tests what plans do.
// UPDATE_GOLDEN=1 in the environment writes tests/plan/golden/*.txt anew instead of comparing.
#include "lib/plan/algorithms.h"
#include "lib/plan/collective.h"
#include "lib/plan/print.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace plan_test {

using namespace gyre;
using namespace gyre::plan;

namespace {

PlanRequest request(Collective collective, std::int32_t rank_count, std::int32_t rank = 0) {
  PlanRequest made;
  made.collective = collective;
  made.rank_count = rank_count;
  made.rank = rank;
  return made;
}

Plan plan_of(std::string_view algorithm, const PlanRequest& asked) {
  Result<Plan> plan = build_plan(algorithm, asked);
  if (!plan.ok()) FAIL(plan.status().full_text());
  return std::move(plan).value();
}

std::string refusal(std::string_view algorithm, const PlanRequest& asked) {
  const Result<Plan> plan = build_plan(algorithm, asked);
  return plan.ok() ? "" : std::string(plan.status().message());
}

std::size_t steps_of_longest_lane(std::string_view algorithm, Collective collective,
                                  std::int32_t n) {
  std::size_t most = 0;
  for (std::int32_t rank = 0; rank < n; ++rank) {
    const Plan plan = plan_of(algorithm, request(collective, n, rank));
    for (const LaneSteps& lane : plan.parts().lanes) most = std::max(most, lane.steps.size());
  }
  return most;
}

template <Step step>
constexpr bool sends_at_compile_time = step.sends();

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a step's verbs follow from its fields", "[plan]") {
  const auto words = [](Buffer local, Buffer store, std::uint32_t recv, std::uint32_t send) {
    Step step;
    step.local = local;
    step.store = store;
    step.recv_count = recv;
    step.send_count = send;
    return verbs(step);
  };
  CHECK(words(Buffer::input, Buffer::none, 0, 1) == "send");
  CHECK(words(Buffer::input, Buffer::none, 1, 1) == "recv reduce send");
  CHECK(words(Buffer::input, Buffer::output, 1, 1) == "recv reduce store send");
  CHECK(words(Buffer::none, Buffer::output, 1, 1) == "recv store send");
  CHECK(words(Buffer::none, Buffer::output, 1, 0) == "recv store");
  CHECK(words(Buffer::none, Buffer::output, 2, 0) == "recv reduce store");
  CHECK(words(Buffer::input, Buffer::output, 0, 0) == "store");
}

TEST_CASE("a step can be a template argument", "[plan]") {
  constexpr Step step = [] {
    Step made;
    made.local = Buffer::input;
    made.send_count = 1;
    return made;
  }();
  STATIC_REQUIRE(sends_at_compile_time<step>);
  STATIC_REQUIRE_FALSE(sends_at_compile_time<Step{}>);
}

TEST_CASE("a message is delivered in place only where its bytes lie or end", "[plan]") {
  Step step;
  CHECK(delivery(step) == Delivery::staged);
  step.local = Buffer::input;
  step.send_count = 1;
  CHECK(delivery(step) == Delivery::pull);
  step.local = Buffer::scratch;
  CHECK(delivery(step) == Delivery::staged);
  step.local = Buffer::output;
  CHECK(delivery(step) == Delivery::pull);
  step.flags = step_flag::staged;
  CHECK(delivery(step) == Delivery::staged);
  step.flags = step_flag::finish;  // the post-op is in no buffer
  CHECK(delivery(step) == Delivery::staged);
  step.recv_count = 1;
  CHECK(delivery(step) == Delivery::push);
  step.flags = 0;
  CHECK(delivery(step) == Delivery::staged);
  step.local = Buffer::none;
  CHECK(delivery(step) == Delivery::push);
  step.chunks.span = 0;
  CHECK(delivery(step) == Delivery::staged);
}

TEST_CASE("the number of steps hardly depends on the number of ranks", "[plan]") {
  for (const std::int32_t n : {3, 4, 17, 64}) {
    CAPTURE(n);
    CHECK(steps_of_longest_lane("ring", Collective::all_reduce, n) == 5);
    CHECK(steps_of_longest_lane("ring", Collective::reduce_scatter, n) == 3);
    CHECK(steps_of_longest_lane("ring", Collective::all_gather, n) == 3);
    CHECK(steps_of_longest_lane("ring", Collective::broadcast, n) == 1);
    CHECK(steps_of_longest_lane("tree", Collective::all_reduce, n) == 1);
    CHECK(steps_of_longest_lane("tree", Collective::reduce, n) == 1);
    CHECK(steps_of_longest_lane("oneshot", Collective::all_reduce, n) == 2);
    CHECK(steps_of_longest_lane("twoshot", Collective::all_reduce, n) == 3);
    CHECK(steps_of_longest_lane("twoshot", Collective::reduce_scatter, n) == 2);
    CHECK(steps_of_longest_lane("doubling", Collective::all_reduce, n) <= 8);
  }
}

TEST_CASE("every algorithm has a plan for one rank, without links", "[plan]") {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      CAPTURE(algorithm.name, collective_name(collective));
      const Plan plan = plan_of(algorithm.name, request(collective, 1));
      CHECK(plan.algorithm() == algorithm.name);
      for (std::uint32_t lane = 0; lane < plan.lane_count(); ++lane) {
        CHECK(plan.lane(lane).step_count > 0);
        for (std::uint32_t i = 0; i < plan.lane(lane).link_count; ++i) {
          CHECK(plan.lane(lane).links[i].peer == 0);
        }
      }
    }
  }
}

TEST_CASE("a request that no plan can serve is refused with its values", "[plan]") {
  const Collective all_reduce = Collective::all_reduce;
  CHECK(refusal("ring", request(all_reduce, 0)) == "a plan for 0 ranks");
  CHECK(refusal("ring", request(all_reduce, 4, 4)) == "rank 4 or root 0 is not one of 4 ranks");
  CHECK(refusal("ring", request(all_reduce, 4, -1)) == "rank -1 or root 0 is not one of 4 ranks");
  CHECK(refusal("oneshot", request(Collective::gather, 4)) == "oneshot does no gather");
  CHECK(refusal("rnig", request(all_reduce, 4)) == "there is no algorithm \"rnig\"");
  PlanRequest asked = request(all_reduce, 3);
  asked.order = {0, 2, 2};
  CHECK(refusal("ring", asked) == "order [0, 2, 2] does not name each of 3 ranks once");
  asked.order = {0, 2};
  CHECK(refusal("ring", asked) == "order [0, 2] does not name each of 3 ranks once");
  asked.order = {2, 0, 1};
  CHECK(refusal("ring", asked).empty());
  asked.hosts = 2;
  CHECK(refusal("hierarchical", asked) == "3 ranks on 2 hosts, in messages of 0 chunks");
}

TEST_CASE("parents that make no tree are refused", "[plan]") {
  struct Case {
    std::vector<std::int32_t> parents;
    const char* reason;
  };
  const Case one = GENERATE(Case{{-1, 0}, "parents [-1, 0] are not those of 3 ranks"},
                            Case{{1, 2, 0}, "parents [1, 2, 0] have not exactly one root"},
                            Case{{-1, -1, 0}, "parents [-1, -1, 0] have not exactly one root"},
                            Case{{-1, 2, 1}, "parents [-1, 2, 1] go in a circle"},
                            Case{{-1, 3, 0}, "parents [-1, 3, 0] name a rank that does not exist"},
                            Case{{-1, 0, 1}, ""});
  PlanRequest asked = request(Collective::all_reduce, 3);
  asked.trees = {one.parents};
  CHECK(refusal("tree", asked) == one.reason);
  asked.trees.assign(65, {-1, 0, 1});
  CHECK(refusal("tree", asked) == "65 trees; the most are 64");
}

TEST_CASE("a chain follows its order from the root on", "[plan]") {
  PlanRequest asked = request(Collective::broadcast, 4);
  asked.order = {2, 0, 3, 1};
  asked.root = 3;
  const std::vector<std::vector<std::int32_t>> neighbours = {{2}, {2, 3}, {0, 1}, {1}};
  for (asked.rank = 0; asked.rank < 4; ++asked.rank) {
    const Plan plan = plan_of("chain", asked);
    std::vector<std::int32_t> peers;
    for (std::uint32_t i = 0; i < plan.lane(0).link_count; ++i)
      peers.push_back(plan.lane(0).links[i].peer);
    CHECK(peers == neighbours[static_cast<std::size_t>(asked.rank)]);
  }
}

TEST_CASE("along a given order, each rank owns the chunk of its place", "[plan]") {
  PlanRequest asked = request(Collective::reduce_scatter, 4);
  asked.order = {2, 0, 3, 1};
  for (std::uint32_t place = 0; place < 4; ++place) {
    asked.rank = asked.order[place];
    CHECK(plan_of("ring", asked).owner(place) == asked.rank);
  }
  CHECK(plan_of("ring", request(Collective::reduce_scatter, 4, 3)).owner(3) == 3);
}

TEST_CASE("collectives are found by their names", "[plan]") {
  for (int i = 0; i < collective_count; ++i) {
    const Collective collective = static_cast<Collective>(i);
    CHECK(*parse_collective(collective_name(collective)) == collective);
  }
}

TEST_CASE("collectives are found however people write their names", "[plan]") {
  for (const char* name : {"all_reduce", "allreduce", "AllReduce", "all-reduce", "ALL_REDUCE"}) {
    CAPTURE(name);
    const Result<Collective> found = parse_collective(name);
    REQUIRE(found.ok());
    CHECK(*found == Collective::all_reduce);
  }
  CHECK(*parse_collective("alltoall") == Collective::all_to_all);
  CHECK(*parse_collective("ReduceScatter") == Collective::reduce_scatter);
  CHECK(parse_collective("alreduce").status().message() ==
        "there is no collective \"alreduce\"; did you mean all_reduce?");
  CHECK(parse_collective("").status().message() ==
        "there is no collective \"\", only all_reduce, reduce_scatter, all_gather, broadcast, "
        "reduce, all_to_all, gather, scatter");
}

TEST_CASE("plans print as the golden files say", "[plan]") {
  struct Golden {
    const char* algorithm;
    Collective collective;
    std::int32_t rank_count;
    std::int32_t root;
  };
  const Golden cases[] = {
      {"ring", Collective::all_reduce, 1, 0},
      {"ring", Collective::all_reduce, 2, 0},
      {"ring", Collective::all_reduce, 4, 0},
      {"ring", Collective::reduce_scatter, 3, 0},
      {"ring", Collective::all_gather, 5, 0},
      {"ring", Collective::broadcast, 4, 1},
      {"ring", Collective::reduce, 4, 3},
      {"tree", Collective::all_reduce, 5, 0},
      {"tree", Collective::all_reduce, 8, 0},
      {"tree", Collective::broadcast, 7, 2},
      {"oneshot", Collective::all_reduce, 4, 0},
      {"twoshot", Collective::all_reduce, 4, 0},
      {"twoshot", Collective::all_gather, 3, 0},
      {"twoshot", Collective::reduce_scatter, 3, 0},
      {"doubling", Collective::all_reduce, 4, 0},
      {"doubling", Collective::all_reduce, 7, 0},
      {"halving", Collective::all_reduce, 6, 0},
      {"window", Collective::all_reduce, 5, 0},
      {"pairwise", Collective::all_to_all, 3, 0},
      {"linear", Collective::gather, 3, 1},
      {"twoshot", Collective::broadcast, 4, 1},
      {"twoshot", Collective::reduce, 3, 1},
      {"bruck", Collective::all_to_all, 5, 0},
      {"linear", Collective::scatter, 3, 2},
      {"hierarchical", Collective::all_reduce, 6, 0},
  };
  const char* update = std::getenv("UPDATE_GOLDEN");
  const bool updates = update != nullptr && std::string_view(update) == "1";
  for (const Golden& golden : cases) {
    const std::string name = fmt::format("{}_{}_{}", golden.algorithm,
                                         collective_name(golden.collective), golden.rank_count);
    CAPTURE(name);
    PlanRequest asked = request(golden.collective, golden.rank_count);
    asked.root = golden.root;
    if (asked.rank_count % 2 == 0) asked.hosts = 2;
    std::string text;
    for (asked.rank = 0; asked.rank < golden.rank_count; ++asked.rank) {
      text += fmt::format("rank {}\n{}", asked.rank, to_text(plan_of(golden.algorithm, asked)));
    }
    const std::string path = fmt::format("{}/golden/{}.txt", GYRE_TESTS_FOLDER, name);
    if (updates) std::ofstream(path, std::ios::binary) << text;
    INFO("run with UPDATE_GOLDEN=1 to write " << path << " anew");
    CHECK(read_file(path) == text);
  }
}

}  // namespace plan_test
