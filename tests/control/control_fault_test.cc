// The control plane when processes die, stop, or end at a bad moment. Each job consists of real
// processes. The test process has one thread when it forks.
#include "tests/support/control/meeting.h"
#include "tests/support/control/process_job.h"

#include <chrono>
#include <csignal>
#include <thread>

namespace control_fault_test {

using namespace gyre;
using namespace gyre::test;

namespace {

// Generous: the machine may have one core for all of a job's processes.
constexpr double bound_s = 3;

double worst_seconds_since(const ProcessJob& job, std::int64_t start_ns, int victim) {
  std::int64_t worst = 0;
  for (int rank = 0; rank < job.ranks(); ++rank)
    if (job.process_of(rank) != victim)
      worst = std::max(worst, job.report(rank).failed_ns.load() - start_ns);
  return static_cast<double>(worst) / 1e9;
}

std::vector<int> culprits(const ProcessJobReport& report) {
  return {report.culprits, report.culprits + report.culprit_count};
}

void require_all_blame(const ProcessJob& job, int victim, std::string_view how) {
  REQUIRE(job.all_failed_but({victim}));
  for (int rank = 0; rank < job.ranks(); ++rank) {
    if (job.process_of(rank) == victim) continue;
    const ProcessJobReport& report = job.report(rank);
    INFO("rank " << rank << " says: " << report.text);
    CHECK(culprits(report) == job.ranks_of(victim));
    CHECK(std::string_view(report.text).find(how) != std::string_view::npos);
    CHECK(report.code == static_cast<int>(Code::RemoteError));
  }
}

}  // namespace

TEST_CASE("every survivor names the process that was killed, whatever its place in the tree") {
  // Root, inner and leaf of 24; the survivors end at once, and none of them is blamed for it.
  const int victim = GENERATE(0, 1, 23);
  ProcessJobPlan plan{.processes = 24, .ranks_each = 2, .die_when_failed = true};
  ProcessJob job(plan);
  REQUIRE(job.all_joined());
  const std::int64_t start = SystemClock::read();
  job.send_signal(victim, SIGKILL);
  require_all_blame(job, victim, "died: ");
  const double seconds = worst_seconds_since(job, start, victim);
  WARN("process " << victim << " of 24 killed, the last survivor knew after " << seconds << " s");
  CHECK(seconds < bound_s);
}

TEST_CASE("a death is seen over TCP as well") {
  const int victim = GENERATE(0, 3);
  ProcessJob job({.processes = 5, .tcp = true});
  REQUIRE(job.all_joined());
  const std::int64_t start = SystemClock::read();
  job.send_signal(victim, SIGKILL);
  require_all_blame(job, victim, "died: ");
  CHECK(worst_seconds_since(job, start, victim) < bound_s);
}

TEST_CASE("a dead process is found although its child holds its sockets open") {
  ProcessJob job({.processes = 3});
  REQUIRE(job.all_joined());
  job.fork_holder(2);
  const std::int64_t start = SystemClock::read();
  job.send_signal(2, SIGKILL);
  require_all_blame(job, 2, "died: ");
  CHECK(worst_seconds_since(job, start, 2) < bound_s);
}

TEST_CASE("a process that ends while the others wait for a third is named at once") {
  // Process 2 never comes; process 1 has joined and is killed long before the deadline.
  ProcessJob job({.processes = 3, .init_s = 20, .absent = {2}});
  usleep(300'000);
  const std::int64_t start = SystemClock::read();
  job.send_signal(1, SIGKILL);
  REQUIRE(job.all_failed_but({1, 2}));
  INFO(job.report(0).text);
  CHECK(culprits(job.report(0)) == std::vector<int>{1});
  CHECK(worst_seconds_since(job, start, 1) < bound_s);
}

TEST_CASE("the root's death ends the wait of those who have joined") {
  ProcessJob job({.processes = 3, .init_s = 20, .absent = {2}});
  usleep(300'000);
  job.send_signal(0, SIGKILL);
  REQUIRE(job.all_failed_but({0, 2}, bound_s));
  CHECK(std::string_view(job.report(1).text).find("made the unique id") != std::string_view::npos);
}

TEST_CASE("a process that is stopped for longer than the limit is named and then evicted") {
  const int victim = GENERATE(0, 2);
  ProcessJob job({.processes = 12, .liveness_s = 1});
  REQUIRE(job.all_joined());
  const std::int64_t start = SystemClock::read();
  job.send_signal(victim, SIGSTOP);
  require_all_blame(job, victim, "does not answer");
  CHECK(worst_seconds_since(job, start, victim) < 3 * bound_s);
  job.send_signal(victim, SIGCONT);
  REQUIRE(job.all_failed_but({}));
  CHECK(culprits(job.report(victim)) == std::vector<int>{victim});
}

TEST_CASE("a process that is stopped for a moment is not blamed, and blames nobody") {
  ProcessJob job({.processes = 12, .liveness_s = 3});
  REQUIRE(job.all_joined());
  for (const int process : {0, 1, 11}) {
    job.send_signal(process, SIGSTOP);
    usleep(800'000);
    job.send_signal(process, SIGCONT);
  }
  usleep(200'000);
  for (int rank = 0; rank < job.ranks(); ++rank) CHECK(job.report(rank).failed_ns.load() == 0);
  CHECK(job.finish());
}

TEST_CASE("a whole job that is stopped and continued goes on") {
  ProcessJob job({.processes = 4, .liveness_s = 1});
  REQUIRE(job.all_joined());
  for (int process = 0; process < 4; ++process) job.send_signal(process, SIGSTOP);
  usleep(2'500'000);
  for (int process = 0; process < 4; ++process) job.send_signal(process, SIGCONT);
  usleep(500'000);
  for (int rank = 0; rank < job.ranks(); ++rank) {
    INFO(job.report(rank).text);
    CHECK(job.report(rank).failed_ns.load() == 0);
  }
  CHECK(job.finish());
}

TEST_CASE("when two processes die at once, every survivor names one of them or both") {
  ProcessJob job({.processes = 14});
  REQUIRE(job.all_joined());
  job.send_signal(1, SIGKILL);
  job.send_signal(13, SIGKILL);
  REQUIRE(job.all_failed_but({1, 13}));
  for (int rank = 0; rank < job.ranks(); ++rank) {
    if (rank == 1 || rank == 13) continue;
    const std::vector<int> named = culprits(job.report(rank));
    INFO("rank " << rank << " says: " << job.report(rank).text);
    REQUIRE(named.size() == 1);
    CHECK((named[0] == 1 || named[0] == 13));
  }
}

TEST_CASE("processes that leave and end in their own time are no failure") {
  ProcessJob job({.processes = 20, .ranks_each = 2});
  REQUIRE(job.all_joined());
  CHECK(job.finish());
  for (int rank = 0; rank < job.ranks(); ++rank) CHECK(job.report(rank).failed_ns.load() == 0);
}

TEST_CASE("a process that ends the moment it has left is no failure, root or not") {
  for (int trial = 0; trial < 12; ++trial) {
    const int hurried = trial % 3;
    ProcessJob job({.processes = 3, .ranks_each = 2});
    REQUIRE(job.all_joined());
    job.depart(hurried);
    // What the others take for a death, they know at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(job.finish());
    for (int rank = 0; rank < job.ranks(); ++rank) {
      INFO("process " << hurried << " left; rank " << rank << " says: " << job.report(rank).text);
      CHECK(job.report(rank).failed_ns.load() == 0);
    }
  }
}

}  // namespace control_fault_test
