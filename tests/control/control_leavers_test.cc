// Processes that leave and end while the others continue: peers that were reached through them are
// still reached, and later failures are still reported to all. Control planes of this process, and
// real processes.
#include "tests/support/control/meeting.h"
#include "tests/support/control/process_job.h"

#include <chrono>
#include <csignal>

namespace control_leavers_test {

using namespace gyre;
using namespace gyre::test;
using State = Membership::State;

namespace {

// Twice what has to hold, as others run beside the test.
constexpr double bound_s = 2;

struct Departing : Meeting {
  Departing(int processes, const Settings& settings = loopback_settings())
      : Meeting(processes, processes, settings) {
    require_joined();
  }
  ~Departing() {
    for (const auto& one : members) one->leave();
  }
  Departing(const Departing&) = delete;
  Departing& operator=(const Departing&) = delete;
  Membership& member(int rank) { return *members[static_cast<std::size_t>(rank)]; }
  // The rank leaves, and its process ends.
  void depart(int rank) {
    member(rank).leave();
    planes[static_cast<std::size_t>(rank)].reset();
    gone.push_back(rank);
  }
  bool stays(int rank) const { return std::ranges::find(gone, rank) == gone.end(); }
  void require_talk(int from, int to) {
    const MessageBytes words{static_cast<std::uint8_t>(from), static_cast<std::uint8_t>(to)};
    const Status sent = member(from).send(to, 5, words);
    INFO(sent.full_text());
    REQUIRE(sent.ok());
    INFO("from rank " << from << " to rank " << to << ": " << member(from).failure().full_text());
    REQUIRE(next_message(member(to), from, 5) == words);
  }
  void require_no_failure() {
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      INFO("rank " << rank << ": " << member(rank).failure().full_text());
      CHECK_FALSE(member(rank).failed());
    }
  }

  std::vector<int> gone;
};

}  // namespace

TEST_CASE("ranks reach each other although whoever was between them has left and ended") {
  const auto leavers = GENERATE(std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 1},
                                std::vector<int>{1, 0}, std::vector<int>{2, 0, 3});
  Departing job(20);
  for (const int leaver : leavers) job.depart(leaver);
  for (const auto& [from, to] : {std::pair(9, 2), {2, 9}, {10, 18}, {18, 11}, {4, 5}, {19, 16}})
    if (job.stays(from) && job.stays(to)) job.require_talk(from, to);
  job.require_no_failure();
}

TEST_CASE("messages that were under way when their way ended arrive once, in order") {
  Departing job(20);
  for (int trial = 0; trial < 2; ++trial) {
    for (std::uint8_t i = 0; i < 100; ++i) {
      REQUIRE(job.member(9).send(17, 5, MessageBytes(1000, i)).ok());
      if (i == 50) job.depart(trial == 0 ? 1 : 2);
    }
    for (std::uint8_t i = 0; i < 100; ++i)
      REQUIRE(next_message(job.member(17), 9, 5) == MessageBytes(1000, i));
    CHECK_FALSE(job.member(17).receive(9, 5).has_value());
  }
  job.require_no_failure();
}

TEST_CASE("an abort is told to all although some have left before") {
  const auto leavers = GENERATE(std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 1});
  const bool at_once = GENERATE(false, true);
  Departing job(20);
  for (const int leaver : leavers) job.depart(leaver);
  if (!at_once) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  job.member(9).abort(Status(Code::Aborted, "enough"));
  for (int rank = 0; rank < 20; ++rank) {
    if (!job.stays(rank) || rank == 9) continue;
    INFO("rank " << rank);
    REQUIRE(fails(job.member(rank), bound_s));
    CHECK(job.member(rank).failure().culprits() == std::vector<int>{9});
  }
}

TEST_CASE("ranks that leave in any order cut nobody off") {
  Departing job(20);
  for (const int leaver : {1, 9, 0, 10, 2, 3, 4, 18, 5, 6}) {
    job.depart(leaver);
    job.require_talk(19, 8);
    job.require_talk(7, 11);
    job.require_talk(11, 19);
  }
  job.require_no_failure();
}

TEST_CASE("a death is told to all although some have left before", "[processes]") {
  const auto leavers = GENERATE(std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{0, 1});
  const int victim = GENERATE(2, 9, 15);
  ProcessJob job({.processes = 16, .liveness_s = 5});
  REQUIRE(job.all_joined());
  for (const int leaver : leavers) job.depart(leaver);
  usleep(100'000);
  const std::int64_t start = SystemClock::read();
  job.send_signal(victim, SIGKILL);
  std::vector<int> others = leavers;
  others.push_back(victim);
  REQUIRE(job.all_failed_but(others, bound_s));
  std::int64_t worst = 0;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    if (std::ranges::find(others, rank) != others.end()) continue;
    const ProcessJobReport& report = job.report(rank);
    INFO("rank " << rank << ": " << report.text);
    CHECK(std::vector<int>(report.culprits, report.culprits + report.culprit_count) ==
          std::vector<int>{victim});
    worst = std::max(worst, report.failed_ns.load() - start);
  }
  WARN("process " << victim << " killed, the last survivor knew after "
                  << static_cast<double>(worst) / 1e9 << " s");
}

TEST_CASE("a process that stops while it should link up anew is named", "[processes]") {
  ProcessJob job({.processes = 11, .liveness_s = 1});
  REQUIRE(job.all_joined());
  job.send_signal(9, SIGSTOP);
  job.depart(1);
  REQUIRE(job.all_failed_but({1, 9}, 3 * bound_s));
  for (const int rank : {0, 2, 8, 10}) {
    const ProcessJobReport& report = job.report(rank);
    INFO("rank " << rank << ": " << report.text);
    CHECK(std::vector<int>(report.culprits, report.culprits + report.culprit_count) ==
          std::vector<int>{9});
  }
}

}  // namespace control_leavers_test
