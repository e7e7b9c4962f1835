// Departures: which ranks have left a communicator, and the tree of the remaining ones. Post:
// messages whose route changes.
#include "lib/control/departures.h"

#include "lib/control/messages.h"
#include "lib/control/post.h"
#include "lib/control/tree.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace departures_test {

using namespace gyre;
using namespace gyre::control;

namespace {

// One rank each, but none in the root's process if `root_has_ranks` is false.
Roster roster_of(std::uint32_t processes, bool root_has_ranks = true) {
  Roster roster;
  roster.processes.resize(processes);
  for (std::uint32_t process = root_has_ranks ? 0 : 1; process < processes; ++process)
    roster.process_of_rank.push_back(process);
  return roster;
}

// All that stay hang together on the one that has no parent.
bool is_one_tree(const Departures& departures, std::uint32_t processes) {
  int tops = 0;
  for (std::uint32_t process = 0; process < processes; ++process) {
    if (departures.is_gone(process)) continue;
    const auto parent = departures.parent(process);
    if (!parent)
      ++tops;
    else if (*parent >= process || departures.is_gone(*parent))
      return false;
  }
  return tops <= 1;
}

std::vector<std::uint32_t> taken_numbers(
    const std::optional<std::vector<Post::ReceivedMessage>>& received) {
  std::vector<std::uint32_t> numbers;
  if (received)
    for (const Post::ReceivedMessage& one : *received)
      numbers.push_back(static_cast<std::uint32_t>(one.head.number));
  return numbers;
}

}  // namespace

TEST_CASE("whoever leaves, those who stay make one tree") {
  std::mt19937 random(7);
  for (const std::uint32_t processes : {2U, 9U, 11U, 80U, 200U}) {
    Departures departures(roster_of(processes));
    std::vector<std::uint32_t> order(processes);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::uint32_t rank : order) {
      CHECK(departures.note(rank));
      CHECK_FALSE(departures.note(rank));
      INFO(processes << " processes, rank " << rank << " left");
      REQUIRE(is_one_tree(departures, processes));
    }
    CHECK(departures.all_left());
  }
}

TEST_CASE("those below a process that is gone hang on the next one above, or on the top") {
  Departures departures(roster_of(80));
  (void)departures.note(1);  // 9 to 16 hung on it
  CHECK(departures.parent(9) == 0U);
  CHECK(departures.parent(73) == 9U);
  CHECK(departures.successors(1) == std::vector<std::uint32_t>{9, 10, 11, 12, 13, 14, 15, 16});
  (void)departures.note(0);
  CHECK(departures.parent(2) == std::nullopt);
  CHECK(departures.parent(9) == 2U);
  CHECK(departures.parent(3) == 2U);
  std::vector<std::uint32_t> successors = departures.successors(0);
  std::ranges::sort(successors);
  CHECK(successors ==
        std::vector<std::uint32_t>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
}

TEST_CASE("a way stands as long as nobody between has gone") {
  Departures departures(roster_of(80));
  CHECK(Departures::between(73, 10) == std::vector<std::uint32_t>{9, 1});
  CHECK(departures.way_stands(73, 10));
  (void)departures.note(1);
  CHECK_FALSE(departures.way_stands(73, 10));
  CHECK(departures.way_stands(73, 9));
  CHECK(departures.way_stands(1, 9));
  CHECK(departures.way_stands(2, 3));
}

TEST_CASE(
    "a process is gone with the last of its ranks, and a root without ranks by its own word") {
  Roster roster = roster_of(3, false);
  roster.process_of_rank.push_back(2);
  Departures departures(roster);
  CHECK_FALSE(departures.is_gone(0));
  CHECK(departures.note(1));
  CHECK_FALSE(departures.is_gone(2));
  CHECK(departures.note(2));
  CHECK(departures.is_gone(2));
  CHECK(departures.note(no_rank));
  CHECK(departures.is_gone(0));
  CHECK_FALSE(departures.note(no_rank));
  CHECK(departures.parent(1) == std::nullopt);
  // Whose root has ranks believes no such word.
  Departures other(roster_of(3));
  CHECK_FALSE(other.note(no_rank));
}

TEST_CASE("what is known of departures is told whole, and nothing else is believed") {
  const bool root_has_ranks = GENERATE(true, false);
  const Roster roster = roster_of(20, root_has_ranks);
  Departures departures(roster);
  CHECK(departures.encode().empty());
  std::vector<std::uint32_t> told{0, 7, 13};
  for (const std::uint32_t rank : told) (void)departures.note(rank);
  if (!root_has_ranks) {
    (void)departures.note(no_rank);
    told.push_back(no_rank);
  }
  const Departures other(roster);
  CHECK(other.decode(departures.encode()) == told);
  CHECK(other.decode({})->empty());
  auto longer = departures.encode();
  longer.push_back(0);
  CHECK_FALSE(other.decode(longer).has_value());
  auto beyond = departures.encode();
  beyond.back() |= 0x80;
  CHECK_FALSE(other.decode(beyond).has_value());
}

TEST_CASE("messages are kept until they were taken, and sent again as they were") {
  Post post;
  const RankMessageHead head{1, 2, 77, 0};
  const Post::FrameBytes first = post.add(4, head, std::vector<std::uint8_t>{1});
  (void)post.add(4, head, std::vector<std::uint8_t>{2});
  (void)post.add(5, head, {});
  CHECK(post.addressees() == std::vector<std::uint32_t>{4, 5});
  REQUIRE(post.unacknowledged(4).size() == 2);
  CHECK(*post.unacknowledged(4)[0] == first);
  post.acknowledge(4, 1);
  REQUIRE(post.unacknowledged(4).size() == 1);
  post.acknowledge(4, 9);
  CHECK(post.unacknowledged(4).empty());
  post.forget(5);
  CHECK(post.addressees().empty());
}

TEST_CASE("messages are taken in order and once, whatever way they came") {
  Post post;
  const auto take = [&](std::uint64_t number) {
    return taken_numbers(post.take(3, {0, 1, 5, number}, {}));
  };
  CHECK(take(1) == std::vector<std::uint32_t>{1});
  CHECK(take(3).empty());
  CHECK(take(4).empty());
  CHECK(take(3).empty());
  CHECK(post.taken(3) == 1);
  CHECK(take(2) == std::vector<std::uint32_t>{2, 3, 4});
  CHECK(take(2).empty());
  CHECK(post.taken(3) == 4);
  CHECK(post.taken(4) == 0);
  CHECK_FALSE(post.take(3, {0, 1, 5, 1U << 20}, {}).has_value());
}

}  // namespace departures_test
