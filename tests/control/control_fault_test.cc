// The control plane among processes that die, stop, or end at the wrong moment. Each job is one of
// real processes; the test process itself has one thread, so that it may fork.
#include "tests/support/control/crew.h"
#include "tests/support/control/meeting.h"

#include <chrono>
#include <csignal>
#include <thread>

using namespace gyre;
using namespace gyre::test;

namespace {

// Generous: the machine may have one core for all of a job's processes.
constexpr double bound_s = 3;

double worst_seconds_since(const Crew& crew, std::int64_t start_ns, int victim) {
  std::int64_t worst = 0;
  for (int rank = 0; rank < crew.ranks(); ++rank)
    if (crew.process_of(rank) != victim)
      worst = std::max(worst, crew.report(rank).failed_ns.load() - start_ns);
  return static_cast<double>(worst) / 1e9;
}

std::vector<int> culprits(const CrewReport& report) {
  return {report.culprits, report.culprits + report.culprit_count};
}

void require_all_blame(const Crew& crew, int victim, std::string_view how) {
  REQUIRE(crew.all_failed_but({victim}));
  for (int rank = 0; rank < crew.ranks(); ++rank) {
    if (crew.process_of(rank) == victim) continue;
    const CrewReport& report = crew.report(rank);
    INFO("rank " << rank << " says: " << report.text);
    CHECK(culprits(report) == crew.ranks_of(victim));
    CHECK(std::string_view(report.text).find(how) != std::string_view::npos);
    CHECK(report.code == static_cast<int>(Code::RemoteError));
  }
}

}  // namespace

TEST_CASE("every survivor names the process that was killed, whatever its place in the tree") {
  // Root, inner and leaf of 24; the survivors end at once, and none of them is blamed for it.
  const int victim = GENERATE(0, 1, 23);
  CrewPlan plan{.processes = 24, .ranks_each = 2, .die_when_failed = true};
  Crew crew(plan);
  REQUIRE(crew.all_joined());
  const std::int64_t start = SystemClock::read();
  crew.send_signal(victim, SIGKILL);
  require_all_blame(crew, victim, "died: ");
  const double seconds = worst_seconds_since(crew, start, victim);
  WARN("process " << victim << " of 24 killed, the last survivor knew after " << seconds << " s");
  CHECK(seconds < bound_s);
}

TEST_CASE("a death is seen over TCP as well") {
  const int victim = GENERATE(0, 3);
  Crew crew({.processes = 5, .tcp = true});
  REQUIRE(crew.all_joined());
  const std::int64_t start = SystemClock::read();
  crew.send_signal(victim, SIGKILL);
  require_all_blame(crew, victim, "died: ");
  CHECK(worst_seconds_since(crew, start, victim) < bound_s);
}

TEST_CASE("a dead process is found although its child holds its sockets open") {
  Crew crew({.processes = 3});
  REQUIRE(crew.all_joined());
  crew.fork_holder(2);
  const std::int64_t start = SystemClock::read();
  crew.send_signal(2, SIGKILL);
  require_all_blame(crew, 2, "died: ");
  CHECK(worst_seconds_since(crew, start, 2) < bound_s);
}

TEST_CASE("a process that ends while the others wait for a third is named at once") {
  // Process 2 never comes; process 1 has joined and is killed long before the deadline.
  Crew crew({.processes = 3, .init_s = 20, .absent = {2}});
  usleep(300'000);
  const std::int64_t start = SystemClock::read();
  crew.send_signal(1, SIGKILL);
  REQUIRE(crew.all_failed_but({1, 2}));
  INFO(crew.report(0).text);
  CHECK(culprits(crew.report(0)) == std::vector<int>{1});
  CHECK(worst_seconds_since(crew, start, 1) < bound_s);
}

TEST_CASE("the root's death ends the wait of those who have joined") {
  Crew crew({.processes = 3, .init_s = 20, .absent = {2}});
  usleep(300'000);
  crew.send_signal(0, SIGKILL);
  REQUIRE(crew.all_failed_but({0, 2}, bound_s));
  CHECK(std::string_view(crew.report(1).text).find("made the unique id") != std::string_view::npos);
}

TEST_CASE("a process that is stopped for longer than the limit is named and then evicted") {
  const int victim = GENERATE(0, 2);
  Crew crew({.processes = 12, .liveness_s = 1});
  REQUIRE(crew.all_joined());
  const std::int64_t start = SystemClock::read();
  crew.send_signal(victim, SIGSTOP);
  require_all_blame(crew, victim, "does not answer");
  CHECK(worst_seconds_since(crew, start, victim) < 3 * bound_s);
  crew.send_signal(victim, SIGCONT);
  REQUIRE(crew.all_failed_but({}));
  CHECK(culprits(crew.report(victim)) == std::vector<int>{victim});
}

TEST_CASE("a process that is stopped for a moment is not blamed, and blames nobody") {
  Crew crew({.processes = 12, .liveness_s = 3});
  REQUIRE(crew.all_joined());
  for (const int process : {0, 1, 11}) {
    crew.send_signal(process, SIGSTOP);
    usleep(800'000);
    crew.send_signal(process, SIGCONT);
  }
  usleep(200'000);
  for (int rank = 0; rank < crew.ranks(); ++rank) CHECK(crew.report(rank).failed_ns.load() == 0);
  CHECK(crew.finish());
}

TEST_CASE("a whole job that is stopped and continued goes on") {
  Crew crew({.processes = 4, .liveness_s = 1});
  REQUIRE(crew.all_joined());
  for (int process = 0; process < 4; ++process) crew.send_signal(process, SIGSTOP);
  usleep(2'500'000);
  for (int process = 0; process < 4; ++process) crew.send_signal(process, SIGCONT);
  usleep(500'000);
  for (int rank = 0; rank < crew.ranks(); ++rank) {
    INFO(crew.report(rank).text);
    CHECK(crew.report(rank).failed_ns.load() == 0);
  }
  CHECK(crew.finish());
}

TEST_CASE("when two processes die at once, every survivor names one of them or both") {
  Crew crew({.processes = 14});
  REQUIRE(crew.all_joined());
  crew.send_signal(1, SIGKILL);
  crew.send_signal(13, SIGKILL);
  REQUIRE(crew.all_failed_but({1, 13}));
  for (int rank = 0; rank < crew.ranks(); ++rank) {
    if (rank == 1 || rank == 13) continue;
    const std::vector<int> named = culprits(crew.report(rank));
    INFO("rank " << rank << " says: " << crew.report(rank).text);
    REQUIRE(named.size() == 1);
    CHECK((named[0] == 1 || named[0] == 13));
  }
}

TEST_CASE("processes that leave and end in their own time are no failure") {
  Crew crew({.processes = 20, .ranks_each = 2});
  REQUIRE(crew.all_joined());
  CHECK(crew.finish());
  for (int rank = 0; rank < crew.ranks(); ++rank) CHECK(crew.report(rank).failed_ns.load() == 0);
}

TEST_CASE("a process that ends the moment it has left is no failure, root or not") {
  for (int trial = 0; trial < 12; ++trial) {
    const int hurried = trial % 3;
    Crew crew({.processes = 3, .ranks_each = 2});
    REQUIRE(crew.all_joined());
    crew.depart(hurried);
    // What the others take for a death, they know at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(crew.finish());
    for (int rank = 0; rank < crew.ranks(); ++rank) {
      INFO("process " << hurried << " left; rank " << rank << " says: " << crew.report(rank).text);
      CHECK(crew.report(rank).failed_ns.load() == 0);
    }
  }
}
