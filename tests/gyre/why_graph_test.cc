// The graph of waiting ranks behind gyre why, on made-up snapshots: cases that a test cannot
// arrange on one host, and results that must not depend on the moment of the snapshot.
#include "tools/gyre/why_graph.h"

#include "tests/support/catch.h"
#include "tools/gyre/why_json.h"
#include "tools/gyre/why_text.h"

#include <nlohmann/json.hpp>

namespace why_graph_test {

using namespace gyre;
using namespace gyre::tools;

namespace {

constexpr std::uint64_t a = 0xA, b = 0xB;
constexpr std::int64_t now = 100 * ns_per_s;

// Ranks of one process each, of communicators a and b, all of one size.
class Scene {
 public:
  explicit Scene(std::int32_t size, bool with_b = false) : size_(size) {
    sight_.now_ns = now;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      Sight::ProcessView process;
      process.facts.pid = process.facts.own_pid = 1000 + rank;
      process.facts.state = 'S';
      process.head.host = {1};
      process.head.host_name = FixedText<64>("here");
      process.head.names.functions.names[0] = FixedText<24>("gyreAllReduce");
      process.head.names.functions.names[3] = FixedText<24>("gyreBroadcast");
      process.head.names.types.names[7] = FixedText<24>("float");
      sight_.processes.push_back(process);
      add(a, rank);
      if (with_b) add(b, rank);
    }
  }

  SeenRank& rank(std::int32_t rank, std::uint64_t communicator = a) {
    return *std::ranges::find_if(sight_.ranks, [&](const SeenRank& one) {
      return one.rank_state.identity.communicator == communicator &&
             one.rank_state.identity.rank == rank;
    });
  }
  // It is in call `number`.
  Scene& calls(std::int32_t one, std::uint64_t number, std::uint64_t communicator = a,
               std::uint8_t function = 0) {
    RankSnapshot& rank_state = rank(one, communicator).rank_state;
    rank_state.flights.back().flight.call.function = function;
    rank_state.flights.back().flight.call.sequence = number;
    rank_state.flights.back().flight.end = FlightEnd::open;
    rank_state.flights.back().end_ns.reset();
    return *this;
  }
  Scene& waits(std::int32_t one, std::int32_t peer, std::uint64_t number = 5,
               std::uint64_t communicator = a) {
    calls(one, number, communicator);
    WaitRecord wait;
    wait.communicator = communicator;
    wait.sequence = number;
    wait.serial = rank(one, communicator).rank_state.flights.back().flight.serial;
    wait.since_ns = now - 3 * ns_per_s;
    wait.phase = WaitPhase::moving;
    wait.what = BlockedOn::data;
    wait.peer = peer;
    rank(one, communicator).rank_state.waits = {wait};
    return *this;
  }
  // Nothing is seen of it but what others know.
  Scene& hide(std::int32_t one, std::uint32_t host = 0) {
    std::erase_if(sight_.ranks,
                  [&](const SeenRank& seen) { return seen.rank_state.identity.rank == one; });
    sight_.processes[static_cast<std::size_t>(one)].facts.state = state_gone;
    for (SeenRank& seen : sight_.ranks)
      seen.rank_state.peers[static_cast<std::size_t>(one)].host = host;
    return *this;
  }
  Sight& sight() { return sight_; }
  ProcessFacts& process(std::size_t index) { return sight_.processes[index].facts; }
  JobView only_job() {
    std::vector<JobView> jobs = find_jobs(sight_);
    REQUIRE(jobs.size() == 1);
    return std::move(jobs[0]);
  }

 private:
  void add(std::uint64_t communicator, std::int32_t rank) {
    SeenRank seen;
    seen.process = static_cast<std::size_t>(rank);
    seen.steady = true;
    seen.thread.state = 'R';
    RankSnapshot& rank_state = seen.rank_state;
    rank_state.identity.communicator = communicator;
    rank_state.identity.name = FixedText<16>(communicator == a ? "aaaa" : "bbbb");
    rank_state.identity.rank = rank;
    rank_state.identity.size = size_;
    rank_state.caller = static_cast<std::uint32_t>(1000 + rank);
    rank_state.begun = 4;
    FlightEntry flight;
    flight.serial = 4;
    flight.call.sequence = 4;
    flight.call.type = 7;
    flight.end = FlightEnd::exact;
    rank_state.flights.push_back({flight, now - 5 * ns_per_s, now - 4 * ns_per_s});
    flight.serial = 5;
    flight.call.sequence = 4;
    rank_state.flights.push_back({flight, now - 4 * ns_per_s, now - 4 * ns_per_s});
    rank_state.hosts.resize(2);
    rank_state.hosts[0] = {{1}, FixedText<64>("here")};
    rank_state.hosts[1] = {{2}, FixedText<64>("far-away")};
    for (std::int32_t peer = 0; peer < size_; ++peer)
      rank_state.peers.push_back({static_cast<std::uint32_t>(1000 + peer), 0});
    sight_.ranks.push_back(std::move(seen));
  }

  const std::int32_t size_;
  Sight sight_;
};

struct Expected {
  RootKind kind;
  std::int32_t rank;
  RankStanding standing;
};
void check_roots(Scene& scene, const std::vector<Expected>& expected) {
  const JobView job = scene.only_job();
  REQUIRE(job.roots.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(job.roots[i].kind == expected[i].kind);
    CHECK(job.roots[i].place.rank == expected[i].rank);
    CHECK(standing_name(job.ranks.at(job.roots[i].place).standing) ==
          standing_name(expected[i].standing));
    CHECK_FALSE(explain_root(scene.sight(), job, job.roots[i]).empty());
  }
  CHECK_FALSE(to_text(scene.sight(), job).empty());
}

}  // namespace

TEST_CASE("a chain of waits ends at the rank that is in no call", "[why]") {
  Scene scene(4);
  scene.waits(0, 1).waits(1, 2).waits(3, 0);
  check_roots(scene, {{RootKind::rank, 2, RankStanding::computes}});
  const JobView job = scene.only_job();
  CHECK(job.verdict == JobView::Verdict::waiting);
  CHECK(job.roots[0].waiting.size() == 3);
  CHECK(job.roots[0].wanted == 5);
  const std::string text = explain_root(scene.sight(), job, job.roots[0]);
  CHECK(text.find("rank 2 (host here, pid 1002) is in no call") == 0);
  CHECK(text.find("it has not called number 5") != text.npos);
}

TEST_CASE("a stopped process ends the chain even if its own record waits", "[why]") {
  Scene scene(3);
  scene.waits(0, 2).waits(1, 0).waits(2, 1);
  scene.process(2).state = 'T';
  check_roots(scene, {{RootKind::rank, 2, RankStanding::stopped}});
}

TEST_CASE("a zombie, a process that is gone and one that came to another end are told apart",
          "[why]") {
  Scene zombie(3);
  zombie.waits(0, 2).waits(1, 0).process(2).state = 'Z';
  check_roots(zombie, {{RootKind::rank, 2, RankStanding::dead}});
  Scene gone(3);
  gone.waits(0, 2).waits(1, 0).hide(2);
  check_roots(gone, {{RootKind::rank, 2, RankStanding::dead}});
  Scene alive(3);
  alive.waits(0, 2).waits(1, 0).hide(2);
  alive.sight().others[1002].facts.state = 'S';
  check_roots(alive, {{RootKind::rank, 2, RankStanding::left}});
  alive.sight().others[1002].closed = true;
  check_roots(alive, {{RootKind::rank, 2, RankStanding::closed}});
}

TEST_CASE("a board that names another host says nothing of a job's", "[why]") {
  Scene scene(3);
  scene.waits(0, 2).waits(1, 0).hide(2);
  Sight::ProcessView foreign;
  foreign.head.host = {9};
  scene.sight().processes.push_back(foreign);
  check_roots(scene, {{RootKind::rank, 2, RankStanding::dead}});
}

TEST_CASE("a rank of another host is named and not judged", "[why]") {
  Scene scene(3);
  scene.waits(0, 2).waits(1, 0).hide(2, 1);
  check_roots(scene, {{RootKind::rank, 2, RankStanding::other_host}});
  const JobView job = scene.only_job();
  CHECK(explain_root(scene.sight(), job, job.roots[0])
            .find("rank 2 (host far-away, pid 1002) is on another host, which is not looked at") ==
        0);
}

TEST_CASE("two ranks that do not come are both named", "[why]") {
  Scene scene(4);
  scene.waits(0, 1).waits(2, 3);
  check_roots(scene, {{RootKind::rank, 1, RankStanding::computes},
                      {RootKind::rank, 3, RankStanding::computes}});
}

TEST_CASE("of two communicators in crossed order, the smaller side is named", "[why]") {
  Scene scene(4, true);
  scene.waits(0, 2).waits(1, 0).waits(3, 0).waits(2, 3, 5, b);
  check_roots(scene, {{RootKind::crossed, 2, RankStanding::elsewhere}});
  CHECK(scene.only_job().roots[0].wanted == 5);
  CHECK(scene.only_job().roots[0].place.communicator == a);
  Scene even(2, true);
  even.waits(0, 1).waits(1, 0, 5, b);
  check_roots(even, {{RootKind::crossed, 1, RankStanding::elsewhere},
                     {RootKind::crossed, 0, RankStanding::elsewhere}});
}

TEST_CASE("who is in a call elsewhere, and gets no further there, is not the end", "[why]") {
  Scene scene(4, true);
  scene.waits(0, 1).waits(1, 2, 5, b);
  check_roots(scene, {{RootKind::rank, 2, RankStanding::computes}});
  CHECK(scene.only_job().roots[0].place.communicator == b);
}

TEST_CASE("another thread of the process does not count as the rank", "[why]") {
  Scene scene(3, true);
  scene.waits(0, 1).waits(1, 2, 5, b);
  scene.rank(1, b).rank_state.caller = 77;
  const JobView job = scene.only_job();
  CHECK(job.ranks.at({a, 1}).standing == RankStanding::computes);
  CHECK(job.roots.size() == 2);
}

TEST_CASE("a circle in different calls names whoever called otherwise", "[why]") {
  Scene scene(3);
  scene.waits(0, 1).waits(1, 2).waits(2, 0).calls(2, 5, a, 3);
  check_roots(scene, {{RootKind::differs, 2, RankStanding::waits}});
  Scene same(3);
  same.waits(0, 1).waits(1, 2).waits(2, 0);
  check_roots(same, {{RootKind::circle, 0, RankStanding::waits}});
}

TEST_CASE("a circle across hosts is a matter of the network, and the smaller side is named",
          "[why]") {
  Scene scene(3);
  scene.waits(0, 1).waits(1, 2).waits(2, 0);
  scene.sight().processes[2].head.host = {2};
  check_roots(scene, {{RootKind::apart, 2, RankStanding::waits}});
  Scene containers(3);
  // One of them is a call ahead, which is no disagreement.
  containers.waits(0, 1).waits(1, 2).waits(2, 0, 6).calls(2, 6, a, 3).process(1).network = 7;
  check_roots(containers, {{RootKind::apart, 1, RankStanding::waits}});
}

TEST_CASE("a wait that changed between two looks is none", "[why]") {
  Scene scene(3);
  scene.waits(0, 1).waits(1, 2).rank(0).steady = false;
  scene.rank(1).steady = false;
  const JobView job = scene.only_job();
  CHECK(job.roots.empty());
  CHECK(job.verdict == JobView::Verdict::running);
  Scene quiet(3);
  CHECK(quiet.only_job().verdict == JobView::Verdict::idle);
}

TEST_CASE("ranks that join wait for those who have not come", "[why]") {
  Scene scene(3);
  scene.hide(2);
  for (std::int32_t rank : {0, 1}) {
    RankSnapshot& rank_state = scene.rank(rank).rank_state;
    rank_state.peers.clear();
    rank_state.flights.clear();
    rank_state.waits.emplace_back();
    rank_state.waits[0].phase = WaitPhase::joining;
    rank_state.waits[0].what = BlockedOn::entered;
  }
  check_roots(scene, {{RootKind::rank, 2, RankStanding::not_there}});
}

TEST_CASE("the first failure of a communicator names its culprits", "[why]") {
  Scene scene(3);
  scene.hide(2);
  for (std::int32_t rank : {0, 1}) {
    FailureRecord note;
    note.code = static_cast<std::int32_t>(Code::RemoteError);
    note.at_ns = now - (rank + 1) * ns_per_s;
    note.culprit_count = 1;
    note.culprits[0] = rank == 1 ? 2 : 1;  // rank 1 was first
    note.text = FixedText<912>("rank 2 died");
    scene.rank(rank).rank_state.failure = note;
  }
  check_roots(scene, {{RootKind::failure, 2, RankStanding::dead}});
  CHECK(scene.only_job().verdict == JobView::Verdict::failed);
}

TEST_CASE("of two sides that blame each other, the smaller one is named", "[why]") {
  for (const std::int32_t apart : {0, 2}) {
    Scene scene(3);
    for (const std::int32_t rank : {0, 1, 2}) {
      FailureRecord note;
      note.code = static_cast<std::int32_t>(Code::RemoteError);
      // The smaller side notices it first.
      note.at_ns = now - (rank == apart ? 2 : 1) * ns_per_s;
      note.culprit_count = 1;
      note.culprits[0] = rank == apart ? 1 : apart;
      scene.rank(rank).rank_state.failure = note;
    }
    scene.process(static_cast<std::size_t>(apart)).network = 7;
    check_roots(scene, {{RootKind::failure, apart, RankStanding::failed}});
  }
  Scene even(2);
  for (const std::int32_t rank : {0, 1}) {
    FailureRecord note;
    note.code = static_cast<std::int32_t>(Code::RemoteError);
    note.culprit_count = 1;
    note.culprits[0] = 1 - rank;
    even.rank(rank).rank_state.failure = note;
  }
  even.process(1).network = 7;
  const JobView job = even.only_job();
  CHECK(job.roots.size() == 2);
}

TEST_CASE("of the two sides of a mismatch, the one that is gone is named", "[why]") {
  Scene scene(3);
  scene.hide(2).sight().others[1002].facts.state = 'S';
  for (std::int32_t rank : {0, 1}) {
    FailureRecord note;
    note.code = static_cast<std::int32_t>(Code::Mismatch);
    note.culprit_count = 2;
    note.culprits = {0, 2};
    scene.rank(rank).rank_state.failure = note;
  }
  check_roots(scene, {{RootKind::failure, 2, RankStanding::left}});
}

TEST_CASE("a rank in a collective and in sends and receives waits for both peers", "[why]") {
  Scene scene(4);
  scene.waits(0, 1);
  RankSnapshot& rank_state = scene.rank(0).rank_state;
  FlightEntry transfers;
  transfers.serial = 6;
  rank_state.flights.push_back({transfers, now - ns_per_s, std::nullopt});
  WaitRecord wait = rank_state.waits[0];
  wait.serial = 6;
  wait.peer = 3;
  rank_state.waits.push_back(wait);
  check_roots(scene, {{RootKind::rank, 1, RankStanding::computes},
                      {RootKind::rank, 3, RankStanding::computes}});
  CHECK(scene.only_job().roots[0].wanted == 0);
}

TEST_CASE("the answer as JSON says the same", "[why]") {
  Scene scene(3);
  scene.waits(0, 2).waits(1, 0);
  const auto document = to_json(scene.sight(), find_jobs(scene.sight()), {"a note"});
  CHECK(document["schema"] == "gyre-why-1");
  const auto& job = document["jobs"][0];
  CHECK(job["verdict"] == "waiting");
  CHECK(job["roots"][0]["rank"] == 2);
  CHECK(job["roots"][0]["last_call"]["number"] == 4);
  CHECK(job["ranks"][0]["wait"]["peer"] == 2);
  CHECK(job["ranks"][0]["wait"]["what"] == "data");
  CHECK(job["ranks"][0]["wait"]["for"] == 3.0);
  CHECK(document["notes"][0] == "a note");
  // Every field is named in what --help prints.
  for (const auto& [name, value] : job["ranks"][0].items())
    CHECK(std::string_view(json_schema).find(name) != std::string_view::npos);
  for (const auto& [name, value] : job["roots"][0].items())
    CHECK(std::string_view(json_schema).find(name) != std::string_view::npos);
}

}  // namespace why_graph_test
