// Joining: what a process does while it waits to hear who the other ranks are.
#include "tests/support/control/scripted_job.h"

namespace joining_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;

TEST_CASE("who joins dials the root again when the connection breaks") {
  ScriptedJob job(true);
  job.require_joined();
  job.member->leave();
}

// A cut may come between the first packets and the handshake.
TEST_CASE("who accepts a connection and says nothing is named within the limit of liveness") {
  ScriptedRoot job(11, 9);
  job.root->next(Kind::join);
  const auto mute = new_process(fmt::format("gyre-mute-{}", getpid()));
  const FileDescriptor accepts = listen_as(mute.listener_name);
  job.root->say_on(job.root_link, Kind::place, encode(PlaceMessage{9, mute, {1}}));
  const FileDescriptor mute_end = accept_soon(accepts);
  const std::int64_t begun_ns = SystemClock::read();
  while (!job.member->failed() && SystemClock::read() - begun_ns < 6 * ns_per_s) {
    job.root->say(Kind::ping, {});
    usleep(50'000);
  }
  REQUIRE(job.member->failed());
  INFO(job.member->failure().full_text());
  CHECK(job.member->failure().culprits() == std::vector<int>{1});
  CHECK(SystemClock::read() - begun_ns < 3 * ns_per_s);
}

}  // namespace joining_test
