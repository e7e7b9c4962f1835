// lib/plan: figures counted from plans (timeline, link loads, explain) and pictures of them.
#include "lib/plan/draw.h"
#include "lib/plan/explain.h"
#include "lib/plan/timeline.h"
#include "tests/support/catch.h"

#include <algorithm>

namespace plan_figures_test {

using namespace gyre;
using namespace gyre::plan;

namespace {

PlanRequest request(Collective collective, std::int32_t rank_count) {
  PlanRequest made;
  made.collective = collective;
  made.rank_count = rank_count;
  return made;
}

std::vector<Plan> plans_of(std::string_view algorithm, Collective collective, std::int32_t n) {
  Result<std::vector<Plan>> plans = build_plans(*find_algorithm(algorithm), request(collective, n));
  if (!plans.ok()) FAIL(plans.status().full_text());
  return std::move(plans).value();
}

Timeline timeline_of(std::string_view algorithm, Collective collective, std::int32_t n,
                     std::uint64_t bytes, std::uint64_t move_time) {
  Result<Timeline> made = timeline(plans_of(algorithm, collective, n), bytes, move_time);
  if (!made.ok()) FAIL(made.status().full_text());
  return std::move(made).value();
}

std::uint64_t longest_chain(std::string_view algorithm, std::int32_t n) {
  return timeline_of(algorithm, Collective::all_reduce, n, 1 << 20, 0).end;
}

std::size_t occurrences(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the longest chain of messages is as long as the algorithm's theory", "[plan][figures]") {
  for (const std::int32_t n : {2, 3, 8, 17, 64}) {
    CAPTURE(n);
    CHECK(longest_chain("ring", n) == static_cast<std::uint64_t>(2 * (n - 1)));
    CHECK(longest_chain("chain", n) == static_cast<std::uint64_t>(2 * (n - 1)));
    CHECK(longest_chain("oneshot", n) == 1);
    CHECK(longest_chain("twoshot", n) == 2);
    CHECK(longest_chain("star", n) == 2);
  }
  CHECK(longest_chain("tree", 8) == 6);
  CHECK(longest_chain("tree", 64) == 12);
  CHECK(longest_chain("binomial", 64) == 12);
  CHECK(longest_chain("doubling", 64) == 6);
  CHECK(longest_chain("doubling", 127) == 8);  // one more before and after
}

TEST_CASE("a ring loads each link with 2 (n - 1) / n of the data", "[plan][figures]") {
  const Timeline flights = timeline_of("ring", Collective::all_reduce, 4, 4000, 0);
  const std::vector<LinkLoad> loads = link_loads(flights);
  REQUIRE(loads.size() == 4);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const LinkLoad& load = loads[static_cast<std::size_t>(rank)];
    CHECK(load.from == rank);
    CHECK(load.to == (rank + 1) % 4);
    CHECK(load.messages == 6);
    CHECK(load.bytes == 6000);
  }
}

TEST_CASE("a busy lane puts its messages one after the other", "[plan][figures]") {
  const Timeline flights = timeline_of("twoshot", Collective::reduce_scatter, 5, 5000, 1);
  std::vector<std::uint64_t> sent;
  for (const MessageInTransit& flight : flights.flights) {
    if (flight.from == 2) sent.push_back(flight.sent);
    CHECK(flight.received >= flight.sent + 1);
  }
  std::sort(sent.begin(), sent.end());
  CHECK(sent == std::vector<std::uint64_t>{0, 1, 2, 3});
}

TEST_CASE("plans that wait for each other have no timeline", "[plan][figures]") {
  std::vector<Plan> plans = plans_of("ring", Collective::all_reduce, 3);
  PlanParts parts = plans[1].parts();
  parts.lanes[0].steps.clear();
  plans[1] = Plan(std::move(parts));
  CHECK_FALSE(timeline(plans, 3000, 0).ok());
  CHECK_FALSE(timeline({}, 3000, 0).ok());
}

TEST_CASE("a drawing has one arrow for each message", "[plan][figures]") {
  for (const char* algorithm : {"ring", "tree", "oneshot", "twoshot", "doubling"}) {
    const std::vector<Plan> plans = plans_of(algorithm, Collective::all_reduce, 6);
    const Result<std::string> picture = draw(plans);
    REQUIRE(picture.ok());
    CAPTURE(algorithm);
    const Timeline flights = timeline_of(algorithm, Collective::all_reduce, 6, 6, 1);
    CHECK(occurrences(*picture, "class=\"message\"") == flights.flights.size());
    CHECK(occurrences(*picture, ">rank ") == 6 + flights.flights.size());
    CHECK(picture->substr(picture->size() - 7) == "</svg>\n");
  }
}

TEST_CASE("multicast sends a store to all once, and receives a sum once", "[plan][figures]") {
  struct Case {
    const char* algorithm;
    Collective collective;
    std::uint64_t sent, received;              // by each of 4 ranks, of 4000 bytes, in pairs
    std::uint64_t group_sent, group_received;  // by multicast
    std::uint64_t switch_moves;
  };
  const Case cases[] = {
      // Three blocks to their owners and the own block to three; or each block to the switch, the
      // own sum to it once, and all sums back.
      {"twoshot", Collective::all_reduce, 6000, 6000, 5000, 5000, 2},
      {"twoshot", Collective::reduce_scatter, 3000, 3000, 4000, 1000, 1},
      {"oneshot", Collective::all_reduce, 12000, 12000, 16000, 4000, 1},
      // No move takes from all, or it is pulled: nothing changes.
      {"twoshot", Collective::all_gather, 3000, 3000, 3000, 3000, 0},
      {"ring", Collective::all_reduce, 6000, 6000, 6000, 6000, 0},
  };
  for (const Case& one : cases) {
    INFO(one.algorithm << " " << collective_name(one.collective));
    const Timeline flights = timeline_of(one.algorithm, one.collective, 4, 4000, 0);
    for (const WireLoad& load : wire_loads(flights, 4, false)) {
      CHECK(load.sent == one.sent);
      CHECK(load.received == one.received);
      CHECK(load.switch_moves == 0);
    }
    for (const WireLoad& load : wire_loads(flights, 4, true)) {
      CHECK(load.sent == one.group_sent);
      CHECK(load.received == one.group_received);
      CHECK(load.switch_moves == one.switch_moves);
    }
  }
}

TEST_CASE("an explanation states depth, roundings and loads", "[plan][figures]") {
  const Result<std::string> text =
      explain(*find_algorithm("ring"), request(Collective::all_reduce, 4), 4000);
  REQUIRE(text.ok());
  CHECK(text->find("fifo depth    at least 2") != text->npos);
  CHECK(text->find("roundings     n - 1 of a sum, made in a fixed order") != text->npos);
  CHECK(text->find("     3    0        0         6          6000") != text->npos);
  CHECK(text->find("     64                 126       8064            126  1.969") != text->npos);
  CHECK_FALSE(explain(*find_algorithm("ring"), request(Collective::scatter, 4), 4000).ok());
  CHECK(text->find("NVLS") == text->npos);
  const Result<std::string> group =
      explain(*find_algorithm("twoshot"), request(Collective::all_reduce, 4), 4000, true);
  REQUIRE(group.ok());
  CHECK(group->find("     3          6000          6000               5000          5000"
                    "                    2\n") != group->npos);
}

}  // namespace plan_figures_test
