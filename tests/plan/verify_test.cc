// lib/plan/verify.h: every plan is proven, and the proof finds the error in a wrong plan.
#include "lib/plan/verify.h"

#include "lib/plan/print.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <random>

namespace verify_test {

using namespace gyre;
using namespace gyre::plan;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int32_t max_ranks = 17;
#else
constexpr std::int32_t max_ranks = 64;
#endif

std::vector<Plan> plans_of(const Algorithm& algorithm, const PlanRequest& request) {
  Result<std::vector<Plan>> plans = build_plans(algorithm, request);
  if (!plans.ok()) FAIL(plans.status().full_text());
  return std::move(plans).value();
}

std::vector<Plan> plans_of(std::string_view name, Collective collective, std::int32_t rank_count) {
  PlanRequest request;
  request.collective = collective;
  request.rank_count = rank_count;
  return plans_of(*find_algorithm(name), request);
}

void check_proof(const Algorithm& algorithm, const PlanRequest& request) {
  const std::vector<Plan> plans = plans_of(algorithm, request);
  const Result<Proof> proof = prove(plans);
  if (!proof.ok()) FAIL(proof.status().full_text());
  CHECK(proof->direct == plans.front().direct());
  CHECK(proof->direct_in_place == plans.front().direct_in_place());
  if (!sums(request.collective)) return;
  CHECK(proof->roundings <= count_roundings(algorithm.roundings, request.rank_count));
  if (algorithm.order == SumOrder::rank) CHECK(proof->in_rank_order);
}

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

std::string complaint(std::span<const Plan> plans) {
  const Result<Proof> proof = prove(plans);
  return proof.ok() ? "" : std::string(proof.status().message());
}

// The same plans with one rank's changed.
std::string complaint_after(std::vector<Plan> plans, std::size_t rank,
                            const std::function<void(PlanParts&)>& change) {
  PlanParts parts = plans[rank].parts();
  change(parts);
  plans[rank] = Plan(std::move(parts));
  return complaint(plans);
}

std::vector<Plan> changed_everywhere(std::span<const Plan> plans,
                                     const std::function<void(PlanParts&)>& change) {
  std::vector<Plan> changed;
  for (const Plan& plan : plans) {
    PlanParts parts = plan.parts();
    change(parts);
    changed.emplace_back(std::move(parts));
  }
  return changed;
}

// A second one for each rank.
std::vector<Plan> with_room_for_a_lane(std::span<const Plan> plans) {
  return changed_everywhere(plans, [](PlanParts& parts) { parts.max_lanes = 2; });
}

struct Mutation {
  const char* name;
  void (*apply)(LaneSteps& lane, Step& step);
};

std::uint32_t after(std::uint32_t index, std::size_t size) {
  return static_cast<std::uint32_t>((index + 1) % size);
}

const Mutation mutations[] = {
    {"wrong chunk",
     [](LaneSteps&, Step& s) {
       const bool any_order = !s.receives() && !s.sends() && s.chunks.span == s.chunks.wrap;
       if (!any_order) s.chunks.first = after(s.chunks.first, s.chunks.wrap);
     }},
    {"chunks backwards", [](LaneSteps&, Step& s) { s.chunks.stride = -s.chunks.stride; }},
    {"chunks stand still", [](LaneSteps&, Step& s) { s.chunks.stride = 0; }},
    {"one repeat more",
     [](LaneSteps&, Step& s) { s.chunks.repeat += s.receives() || s.sends() ? 1 : 0; }},
    {"one repeat less",
     [](LaneSteps&, Step& s) { s.chunks.repeat -= s.chunks.repeat > 1 ? 1 : 0; }},
    {"no chunk", [](LaneSteps&, Step& s) { s.chunks.span = 0; }},
    {"wrong source",
     [](LaneSteps& l, Step& s) {
       if (s.recv_count > 0) s.recv_first = after(s.recv_first, l.links.size());
     }},
    {"wrong target",
     [](LaneSteps& l, Step& s) {
       if (s.send_count > 0) s.send_first = after(s.send_first, l.links.size());
     }},
    {"sources stand still", [](LaneSteps&, Step& s) { s.recv_stride = 0; }},
    {"targets backwards",
     [](LaneSteps&, Step& s) { s.send_stride = static_cast<std::int16_t>(-s.send_stride); }},
    {"one source less", [](LaneSteps&, Step& s) { s.recv_count -= s.recv_count > 0 ? 1 : 0; }},
    {"one target less", [](LaneSteps&, Step& s) { s.send_count -= s.send_count > 0 ? 1 : 0; }},
    {"one source more", [](LaneSteps&, Step& s) { ++s.recv_count; }},
    {"one target more", [](LaneSteps&, Step& s) { ++s.send_count; }},
    {"finish the other way", [](LaneSteps&, Step& s) { s.flags ^= step_flag::finish; }},
    {"paired with the next",
     [](LaneSteps&, Step& s) { s.flags |= s.chunks.repeat > 1 ? step_flag::paired : 0; }},
    {"a reserved flag", [](LaneSteps&, Step& s) { s.flags |= 1 << 15; }},
    {"nothing stored", [](LaneSteps&, Step& s) { s.store = Buffer::none; }},
    {"the input stored", [](LaneSteps&, Step& s) { s.store = Buffer::input; }},
    {"stored to scratch",
     [](LaneSteps&, Step& s) {
       if (s.stores()) s.store = Buffer::scratch;
     }},
    {"nothing of its own", [](LaneSteps&, Step& s) { s.local = Buffer::none; }},
    {"input for output",
     [](LaneSteps&, Step& s) {
       if (s.local == Buffer::output) s.local = Buffer::input;
     }},
    {"output for input",
     [](LaneSteps&, Step& s) {
       if (s.local == Buffer::input) s.local = Buffer::output;
     }},
    {"another channel",
     [](LaneSteps& l, Step&) {
       for (Link& link : l.links) link.channel += 7;
     }},
    {"missing", [](LaneSteps& l, Step& s) { l.steps.erase(l.steps.begin() + (&s - &l.steps[0])); }},
    {"done twice",
     [](LaneSteps& l, Step& s) {
       if (!s.receives() && !s.sends()) return;  // to copy twice is harmless
       const Step copy = s;
       l.steps.insert(l.steps.begin() + (&s - &l.steps[0]), copy);
     }},
};

struct MutationCount {
  std::size_t caught = 0;
  std::vector<std::string> survivors;
};

// Each mutation of each step of each lane of each rank. One that changes nothing is none.
void mutate(const std::vector<Plan>& plans, MutationCount& count) {
  const auto text = [](const PlanParts& parts) {
    return check_form(Plan(parts)).ok() ? to_text(Plan(parts)) : "";
  };
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const PlanParts& whole = plans[rank].parts();
    for (std::size_t lane = 0; lane < whole.lanes.size(); ++lane) {
      for (std::size_t step = 0; step < whole.lanes[lane].steps.size(); ++step) {
        for (const Mutation& mutation : mutations) {
          PlanParts parts = whole;
          mutation.apply(parts.lanes[lane], parts.lanes[lane].steps[step]);
          const bool same_links = parts.lanes[lane].links == whole.lanes[lane].links;
          if (same_links && text(parts) == text(whole)) continue;
          std::vector<Plan> changed = plans;
          changed[rank] = Plan(std::move(parts));
          if (!complaint(changed).empty()) {
            ++count.caught;
          } else {
            count.survivors.push_back(fmt::format("{} {} of {}: rank {} lane {} step {}: {}",
                                                  plans[0].algorithm(),
                                                  collective_name(plans[0].collective()),
                                                  plans.size(), rank, lane, step, mutation.name));
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("every algorithm is right for 1 to 64 ranks", "[plan][verify]") {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      for (std::int32_t n = 1; n <= max_ranks; ++n) {
        PlanRequest request;
        request.collective = collective;
        request.rank_count = n;
        const std::int32_t last_root = is_rooted(collective) ? n - 1 : 0;
        for (const std::int32_t root : {0, last_root / 2, last_root}) {
          CAPTURE(algorithm.name, collective_name(collective), n, root);
          request.root = root;
          check_proof(algorithm, request);
          if (last_root == 0) break;
        }
      }
    }
  }
}

namespace {

std::vector<std::int32_t> shuffled_ranks(std::int32_t n) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(static_cast<std::uint64_t>(n));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

TEST_CASE("a chain is right along any order, from any root", "[plan][verify]") {
  for (const char* const name : {"chain", "ring"})
    for (const Collective collective : {Collective::broadcast, Collective::reduce})
      for (std::int32_t n = 1; n <= 17; ++n) {
        CAPTURE(name, collective_name(collective), n);
        PlanRequest request;
        request.collective = collective;
        request.rank_count = n;
        request.order = shuffled_ranks(n);
        request.root = n / 2;
        check_proof(*find_algorithm(name), request);
      }
}

TEST_CASE("a ring is right along any order", "[plan][verify]") {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    for (std::int32_t n = 1; n <= 17; ++n) {
      CAPTURE(collective_name(collective), n);
      PlanRequest request;
      request.collective = collective;
      request.rank_count = n;
      request.order = shuffled_ranks(n);
      check_proof(*find_algorithm("ring"), request);
    }
  }
}

TEST_CASE("trees of any shape are right", "[plan][verify]") {
  std::mt19937_64 random(7);
  for (std::int32_t n = 1; n <= 17; ++n) {
    CAPTURE(n);
    PlanRequest request;
    request.rank_count = n;
    for (int tree = 0; tree < 3; ++tree) {
      std::vector<std::int32_t> seats(static_cast<std::size_t>(n)), parents(seats.size(), -1);
      std::iota(seats.begin(), seats.end(), 0);
      std::shuffle(seats.begin(), seats.end(), random);
      for (std::size_t seat = 1; seat < seats.size(); ++seat)
        parents[static_cast<std::size_t>(seats[seat])] = seats[random() % seat];
      request.trees.push_back(std::move(parents));
    }
    const std::vector<Plan> plans = plans_of(*find_algorithm("tree"), request);
    CHECK(plans.front().chunk_count() == 3);
    const Result<Proof> proof = prove(plans);
    if (!proof.ok()) FAIL(proof.status().full_text());
    CHECK(proof->direct_in_place == plans.front().direct_in_place());
  }
}

TEST_CASE("a message in a host holds one chunk, or few on many hosts", "[plan][verify]") {
  struct Case {
    std::int32_t hosts, per_host;
    std::uint32_t message_chunks;
  };
  // 16 parts of a block at most, so that the steps fit a lane.
  for (const Case& one : {Case{4, 2, 1}, Case{16, 3, 1}, Case{17, 3, 2}, Case{34, 2, 3}}) {
    CAPTURE(one.hosts, one.per_host);
    PlanRequest request;
    request.rank_count = one.hosts * one.per_host;
    request.hosts = one.hosts;
    check_proof(*find_algorithm("hierarchical"), request);
    CHECK(plans_of(*find_algorithm("hierarchical"), request)[0].message_chunks() ==
          one.message_chunks);
  }
}

TEST_CASE("hosts and grains of any size are right", "[plan][verify]") {
  for (std::int32_t n = 1; n <= std::min(24, max_ranks); ++n) {
    PlanRequest request;
    request.rank_count = n;
    for (request.hosts = 1; request.hosts <= n; ++request.hosts) {
      CAPTURE(n, request.hosts);
      if (n % request.hosts == 0) check_proof(*find_algorithm("hierarchical"), request);
    }
    request.hosts = n % 2 == 0 ? 2 : 1;
    request.order = shuffled_ranks(n);
    check_proof(*find_algorithm("hierarchical"), request);
    request.order.clear();
    request.hosts = 1;
    for (request.grain = 1; request.grain <= 9; request.grain += 2) {
      CAPTURE(n, request.grain);
      check_proof(*find_algorithm("halving"), request);
      CHECK(plans_of(*find_algorithm("halving"), request)[0].message_chunks() <=
            static_cast<std::uint32_t>(request.grain));
    }
  }
}

TEST_CASE("all ranks declare the longest message of any of them", "[plan][verify]") {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      for (std::int32_t n = 1; n <= 17; ++n) {
        PlanRequest request;
        request.collective = collective;
        request.rank_count = n;
        request.hosts = algorithm.name == "hierarchical" && n % 2 == 0 ? n / 2 : 1;
        const std::vector<Plan> plans = plans_of(algorithm, request);
        std::uint32_t longest = 1;
        for (const Plan& plan : plans)
          for (const LaneSteps& lane : plan.parts().lanes)
            for (const Step& step : lane.steps)
              if (step.sends() || step.receives())
                longest = std::max(longest, step.chunks.span * step.repeats_of_move());
        CAPTURE(algorithm.name, collective_name(collective), n);
        for (const Plan& plan : plans) CHECK(plan.message_chunks() == longest);
      }
    }
  }
  const std::vector<Plan> window = plans_of("window", Collective::all_gather, 8);
  CHECK(complaint(changed_everywhere(window, [](PlanParts& parts) {
          parts.message_chunks = 3;
        })).find("4 chunks in a message, and 3 were declared") != std::string::npos);
}

TEST_CASE("no declared depth is deeper than needed", "[plan][verify]") {
  std::size_t deep = 0;
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective collective : algorithm.collectives) {
      for (std::int32_t n = 1; n <= 9; ++n) {
        PlanRequest request;
        request.collective = collective;
        request.rank_count = n;
        request.hosts = algorithm.name == "hierarchical" && n % 2 == 0 ? n / 2 : 1;
        const std::vector<Plan> plans = plans_of(algorithm, request);
        if (plans.front().min_depth() == 1) continue;
        CAPTURE(algorithm.name, collective_name(collective), n);
        const std::string text =
            complaint(changed_everywhere(plans, [](PlanParts& parts) { --parts.min_depth; }));
        CHECK(text.find("deadlock of") != text.npos);
        ++deep;
      }
    }
  }
  CHECK(deep > 20);
}

TEST_CASE("a plan that is direct in place by declaration only is found out", "[plan][verify]") {
  for (const char* name : {"oneshot", "doubling"}) {
    const std::vector<Plan> plans = plans_of(name, Collective::all_reduce, 4);
    CHECK_FALSE(plans.front().direct_in_place());
    const std::string text = complaint(
        changed_everywhere(plans, [](PlanParts& parts) { parts.direct_in_place = true; }));
    CHECK(text.find("in place") == 0);
    CHECK(text.find("overwritten") != text.npos);
  }
  // Behind a power of two, doubling keeps a sum in the output that the next step overwrites.
  const std::vector<Plan> folded = plans_of("doubling", Collective::all_reduce, 6);
  const std::string text = complaint(changed_everywhere(folded, [](PlanParts& parts) {
    for (Step& step : parts.lanes[0].steps) {
      step.flags &= static_cast<std::uint16_t>(~step_flag::staged);
    }
  }));
  CHECK(text.find("out of place, even, direct") == 0);
}

TEST_CASE("a broken plan is reported with its place and its fault", "[plan][verify]") {
  const std::vector<Plan> ring = with_room_for_a_lane(plans_of("ring", Collective::all_reduce, 4));
  struct Broken {
    std::function<void(PlanParts&)> change;
    const char* where;
    const char* what;
  };
  const auto extra_message = [](PlanParts& parts) {
    LaneSteps lane{{{3, 5}}, {parts.lanes[0].steps[0]}};
    lane.steps[0].send_first = 0;
    parts.lanes.push_back(lane);
  };
  const Broken cases[] = {
      {[](PlanParts& p) { p.lanes[0].steps[2].flags = 0; }, "output chunk 2", "not finished"},
      {[](PlanParts& p) { p.lanes[0].steps[1].flags = step_flag::finish; }, "rank 3 lane 0 step 1.",
       "summed after it was finished"},
      {[](PlanParts& p) { p.lanes[0].steps[1].chunks.first = 1; }, "rank 2 lane 0 step 1.0 round",
       "pieces of the chunks"},
      {[](PlanParts& p) { p.lanes[0].steps[4].store = Buffer::scratch; }, "rank 2: lane 0: step 4",
       "chunks up to 4 of 0"},
      {[](PlanParts& p) { p.lanes[0].steps[3].store = Buffer::none; }, "rank 2: lane 0: step 3",
       "it touches no buffer"},
      {[](PlanParts& p) { p.lanes[0].steps[0].send_count = 9; }, "rank 2: lane 0: step 0",
       "link indices out of range"},
      {[](PlanParts& p) {
         p.lanes[0].links = {{1, 0}, {7, 0}};
       },
       "rank 2: lane 0", "a link to rank 7"},
      {[](PlanParts& p) {
         p.lanes[0].links = {{3, 0}, {1, 0}};
       },
       "rank 2: lane 0", "links not ascending"},
      {[](PlanParts& p) { p.lanes[0].steps[1].chunks.span = 5; }, "rank 2: lane 0: step 1",
       "chunk indices out of range"},
      {[](PlanParts& p) { p.lanes[0].steps[0].local = Buffer::none; }, "rank 2: lane 0: step 0",
       "it has no source"},
      {[](PlanParts& p) { p.lanes[0].steps[0].store = Buffer::input; }, "rank 2: lane 0: step 0",
       "stores to the input"},
      {[](PlanParts& p) { p.lanes[0].steps.resize(65, p.lanes[0].steps[4]); }, "rank 2: lane 0",
       "65 steps, more than 64"},
      {[](PlanParts& p) { p.lanes.push_back(p.lanes[0]); }, "rank 2 lane", "another lane has"},
      {[](PlanParts& p) { p.lanes.resize(3, p.lanes[0]); }, "rank 2", "more lanes than any rank"},
      {[](PlanParts& p) { p.max_lanes = 1; }, "rank 2", "another family"},
      {[](PlanParts& p) { p.root = 1; }, "rank 2", "another family"},
      {extra_message, "from rank 2 to 3 on channel 5", "nobody received"},
      {[](PlanParts& p) { p.lanes[0].steps.clear(); }, "waits for data from rank", "deadlock of"},
  };
  for (const Broken& broken : cases) {
    const std::string text = complaint_after(ring, 2, broken.change);
    CAPTURE(text, broken.where, broken.what);
    CHECK(text.find(broken.where) != text.npos);
    CHECK(text.find(broken.what) != text.npos);
  }
}

TEST_CASE("lanes of one rank that nothing orders are found out", "[plan][verify]") {
  // Rank 1 sends its output from one lane while another lane stores it.
  std::vector<Plan> plans = with_room_for_a_lane(plans_of("chain", Collective::broadcast, 3));
  const std::string text = complaint_after(plans, 1, [](PlanParts& parts) {
    LaneSteps& lane = parts.lanes[0];
    Step relay = lane.steps[0];
    LaneSteps second{lane.links, {relay}};
    lane.steps[0].send_count = 0;
    second.steps[0].recv_count = 0;
    second.steps[0].local = Buffer::output;
    second.steps[0].store = Buffer::none;
    parts.lanes.push_back(second);
  });
  const bool noticed = text.find("nothing orders the read") != text.npos ||
                       text.find("before anything was stored") != text.npos;
  CAPTURE(text);
  CHECK(noticed);
}

TEST_CASE("no mutation of a plan goes unnoticed", "[plan][verify]") {
  MutationCount count;
  mutate(plans_of("ring", Collective::all_reduce, 4), count);
  mutate(plans_of("ring", Collective::reduce_scatter, 4), count);
  mutate(plans_of("ring", Collective::all_gather, 4), count);
  mutate(plans_of("chain", Collective::broadcast, 4), count);
  mutate(plans_of("tree", Collective::all_reduce, 6), count);
  mutate(plans_of("tree", Collective::reduce, 5), count);
  mutate(plans_of("oneshot", Collective::all_reduce, 4), count);
  mutate(plans_of("twoshot", Collective::all_reduce, 4), count);
  mutate(plans_of("twoshot", Collective::reduce_scatter, 4), count);
  mutate(plans_of("doubling", Collective::all_reduce, 4), count);
  mutate(plans_of("doubling", Collective::all_reduce, 6), count);
  mutate(plans_of("halving", Collective::all_reduce, 4), count);
  mutate(plans_of("window", Collective::all_reduce, 5), count);
  mutate(plans_of("window", Collective::reduce_scatter, 4), count);
  mutate(plans_of("twoshot", Collective::broadcast, 4), count);
  mutate(plans_of("twoshot", Collective::reduce, 4), count);
  mutate(plans_of("pairwise", Collective::all_to_all, 4), count);
  mutate(plans_of("bruck", Collective::all_to_all, 5), count);
  mutate(plans_of("linear", Collective::gather, 4), count);
  mutate(plans_of("linear", Collective::scatter, 4), count);
  PlanRequest hosts;
  hosts.rank_count = 6;
  hosts.hosts = 2;
  mutate(plans_of(*find_algorithm("hierarchical"), hosts), count);
  CHECK(count.caught > 4000);
  CHECK(count.survivors == std::vector<std::string>());
}

TEST_CASE("a message that its sender may change while a wire reads it is found", "[plan][verify]") {
  // The second rank of a chain passes on what it has stored, and then stores it once more. In
  // shared memory nobody reads there any more; a wire may.
  const std::vector<Plan> plans = plans_of("chain", Collective::broadcast, 3);
  CHECK(complaint(plans) == "");
  const std::string text = complaint_after(plans, 1, [](PlanParts& parts) {
    Step again;
    again.local = again.store = Buffer::output;
    again.chunks = parts.lanes[0].steps[0].chunks;
    parts.lanes[0].steps.push_back(again);
  });
  CAPTURE(text);
  CHECK(text.find("carried") != text.npos);
  CHECK(text.find("pulling chunk 0 from rank 1") != text.npos);
}

TEST_CASE("the proof counts the moves that a switch can do, which deliver directly", "[verify]") {
  struct Case {
    const char* algorithm;
    Collective collective;
    std::uint64_t sums, stores;  // of each rank
  };
  const Case cases[] = {{"twoshot", Collective::all_reduce, 1, 1},
                        {"twoshot", Collective::reduce_scatter, 1, 0},
                        {"twoshot", Collective::all_gather, 0, 0},
                        {"oneshot", Collective::all_reduce, 1, 0},
                        {"ring", Collective::all_reduce, 0, 0}};
  for (const Case& one : cases) {
    const Result<Proof> proof = prove(plans_of(one.algorithm, one.collective, 5));
    INFO(one.algorithm << " " << collective_name(one.collective));
    REQUIRE(proof.ok());
    // A move of each round and each chunk with a piece left in it.
    CHECK((proof->switch_sums > 0) == (one.sums > 0));
    CHECK(proof->switch_stores == (one.stores > 0 ? proof->switch_sums : 0));
  }
  // One peer that stages its part is enough for nobody's switch but its own.
  std::vector<Plan> plans = plans_of("twoshot", Collective::all_reduce, 5);
  const std::uint64_t before = prove(plans)->switch_sums;
  PlanParts parts = plans[2].parts();
  parts.lanes[0].steps[0].flags |= step_flag::staged;
  plans[2] = Plan(std::move(parts));
  const Result<Proof> staged = prove(plans);
  REQUIRE(staged.ok());
  CHECK(staged->switch_sums > 0);
  CHECK(staged->switch_sums < before);
  CHECK(staged->switch_stores == before);
}

}  // namespace verify_test
