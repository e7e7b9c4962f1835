// Joining: what a process does while it waits to hear who the other ranks are.
#include "tests/support/control/scripted_job.h"

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
  Settings settings = loopback_settings();
  settings.liveness_timeout_s = 1;
  const auto plane = start_plane(settings);
  trust::UniqueId id;
  id.secret = *trust::random_secret();
  id.root_host = plane->identity().host;
  id.root_listener = fmt::format("gyre-root-{}", getpid());
  const FileDescriptor listener = listen_as(id.root_listener);
  const auto member = join(*plane, id, 11, 9, settings);
  ScriptedPeer root(accept_soon(listener), id, new_process(id.root_listener));
  const std::uint64_t link = root.take_link();
  root.next(Kind::join);
  const auto mute = new_process(fmt::format("gyre-mute-{}", getpid()));
  const FileDescriptor accepts = listen_as(mute.listener_name);
  root.say_on(link, Kind::place, encode(PlaceMessage{9, mute, {1}}));
  const FileDescriptor mute_end = accept_soon(accepts);
  const std::int64_t begun_ns = SystemClock::read();
  while (!member->failed() && SystemClock::read() - begun_ns < 6 * ns_per_s) {
    root.say(Kind::ping, {});
    usleep(50'000);
  }
  REQUIRE(member->failed());
  INFO(member->failure().full_text());
  CHECK(member->failure().culprits() == std::vector<int>{1});
  CHECK(SystemClock::read() - begun_ns < 3 * ns_per_s);
}
