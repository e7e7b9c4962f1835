// Ranks that fail before they have reached the root: the others hear of it as soon as the root is
// there, and do not wait for them until the time to meet is over.
#include "tests/support/control/meeting.h"

namespace early_failure_test {

using namespace gyre;
using namespace gyre::test;
using State = Membership::State;

namespace {

// Planes for rank 0's process and two others, and an id that names rank 0's before it is the root.
struct EarlyFailure {
  // The process of rank 1 joins.
  std::shared_ptr<Membership> join_early(int init_timeout_s = 20) const {
    Settings settings = loopback_settings();
    settings.init_timeout_s = init_timeout_s;
    return join(*early, id, 3, 1, settings);
  }
  void make_root() const { REQUIRE(root->create_root(secret).ok()); }
  // Ranks 0 and 2 come, and hear of rank 1's failure at once.
  void require_heard(const std::vector<int>& culprits, std::string_view part) const {
    const std::int64_t begun_ns = SystemClock::read();
    for (const auto& member : {join(*root, id, 3, 0), join(*third, id, 3, 2)}) {
      REQUIRE(fails(*member));
      INFO(member->failure().full_text());
      CHECK(member->failure().culprits() == culprits);
      CHECK(member->failure().message().find(part) != std::string_view::npos);
    }
    CHECK(SystemClock::read() - begun_ns < 3 * ns_per_s);
  }

  std::unique_ptr<ControlPlane> root = start_plane(), early = start_plane(), third = start_plane();
  const trust::Secret secret = *trust::random_secret();
  const trust::UniqueId id = *trust::id_on_this_host(secret);
};

}  // namespace

TEST_CASE("a rank that aborts or leaves before the root is there is heard when it comes") {
  const bool aborts = GENERATE(true, false);
  const EarlyFailure job;
  const auto member = job.join_early();
  if (aborts) member->abort(Status(Code::Aborted, "enough"));
  if (GENERATE(true, false) || !aborts) member->leave();
  job.make_root();
  job.require_heard({1}, aborts ? "aborted: enough" : "left before all ranks had joined");
}

TEST_CASE("ranks that have the id of a root which does not join by it are told why") {
  const EarlyFailure job;
  const auto waiting = job.join_early();
  job.make_root();
  job.root->renounce(job.id, Status(Code::SystemError, "too little memory").blame({0}));
  const auto late = join(*job.third, job.id, 3, 2);
  for (const auto& member : {waiting, late}) {
    REQUIRE(fails(*member));
    INFO(member->failure().full_text());
    CHECK(member->failure().culprits() == std::vector<int>{0});
    CHECK(member->failure().message().find("too little memory") != std::string_view::npos);
  }
}

TEST_CASE("a rank that has waited in vain for the root says so when it comes") {
  const EarlyFailure job;
  const auto member = job.join_early(1);
  REQUIRE(fails(*member));
  CHECK(member->failure().message().find("reported by") == std::string_view::npos);
  member->leave();
  job.make_root();
  job.require_heard({0}, "(reported by rank 1)");
}

TEST_CASE("a process that ends at once after its rank's abort takes the time to say so") {
  EarlyFailure job;
  job.make_root();
  const auto member = job.join_early();
  member->abort(Status(Code::Aborted, "enough"));
  member->leave();
  job.early.reset();
  job.require_heard({1}, "aborted: enough");
}

TEST_CASE("a failure is kept for the root no longer than its rank would have waited") {
  const EarlyFailure job;
  const auto member = job.join_early(1);
  member->abort(Status(Code::Aborted, "enough"));
  member->leave();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  job.make_root();
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  const auto first = join(*job.root, job.id, 3, 0, settings);
  REQUIRE(fails(*first));
  INFO(first->failure().full_text());
  CHECK(first->failure().code() == Code::Timeout);
  CHECK(first->failure().culprits() == std::vector<int>{1, 2});
}

TEST_CASE("a rank that comes again is not held to its earlier failure") {
  const EarlyFailure job;
  const auto earlier = job.join_early();
  earlier->abort(Status(Code::Aborted, "not yet"));
  earlier->leave();
  const auto again = job.join_early();
  job.make_root();
  for (const auto& member :
       {again, join(*job.root, job.id, 3, 0), join(*job.third, job.id, 3, 2)}) {
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    CHECK(member->state() == State::joined);
  }
}

}  // namespace early_failure_test
