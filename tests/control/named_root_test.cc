// Roots that a launcher named, by a secret that it gave to all ranks of a host: how ranks meet
// there, and what a call that failed leaves behind for the next one.
#include "tests/support/base/resource_use.h"
#include "tests/support/control/scripted_job.h"

namespace named_root_test {

using namespace gyre;
using namespace gyre::test;
using gyre::tests::open_descriptors;
using State = Membership::State;

namespace {

Settings of_one_second() {
  Settings settings = loopback_settings();
  settings.init_timeout_s = 1;
  return settings;
}

// Two ranks of two processes, until they have joined; then they leave.
void require_meeting(ControlPlane& root, ControlPlane& other, const trust::Secret& secret) {
  const auto ours = root.create_root(secret);
  INFO(ours.status().full_text());
  REQUIRE(ours.ok());
  const auto a = join(root, *ours, 2, 0), b = join(other, *ours, 2, 1);
  for (const auto& member : {a, b}) {
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    REQUIRE(member->state() == State::joined);
  }
  a->leave();
  b->leave();
}

}  // namespace

TEST_CASE("a secret that all ranks have is enough to meet on one host") {
  const auto root = start_plane(), other = start_plane();
  const auto secret = trust::random_secret();
  const auto theirs = trust::id_on_this_host(*secret);
  const auto early = join(*other, *theirs, 2, 1);  // before the root is there
  const auto ours = root->create_root(*secret);
  REQUIRE(ours.ok());
  const auto member = join(*root, *ours, 2, 0);
  REQUIRE(settles(*member));
  CHECK(member->state() == State::joined);
  CHECK(soon([&] { return early->state() == State::joined; }));
}

TEST_CASE("a process that was the root of many jobs listens at none of their names") {
  const auto root = start_plane(), other = start_plane();
  const auto idle = open_descriptors();
  for (int job = 0; job < 20; ++job) require_meeting(*root, *other, *trust::random_secret());
  CHECK(soon([&] { return open_descriptors() == idle; }));
}

TEST_CASE("ranks that did not meet in time may call again with their secret") {
  const auto root = start_plane(), other = start_plane();
  const auto secret = *trust::random_secret();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto ours = root->create_root(secret);
    INFO(ours.status().full_text());
    REQUIRE(ours.ok());
    const auto member = join(*root, *ours, 2, 0, of_one_second());
    REQUIRE(fails(*member));
    CHECK(member->failure().message().find("rank 1 did not join") != std::string_view::npos);
    member->leave();
  }
  require_meeting(*root, *other, secret);
}

TEST_CASE("a rank that is on its way when the root begins anew joins then") {
  const auto root = start_plane(), other = start_plane();
  const auto secret = *trust::random_secret();
  const auto ours = root->create_root(secret);
  REQUIRE(ours.ok());
  const auto first = join(*root, *ours, 2, 0);
  first->abort(Status(Code::Aborted, "not yet"));
  first->leave();
  REQUIRE(root->create_root(secret).ok());
  const auto late = join(*other, *ours, 2, 1);
  const auto second = join(*root, *ours, 2, 0);
  for (const auto& member : {second, late}) {
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    CHECK(member->state() == State::joined);
  }
}

TEST_CASE("a root that none of its own ranks has joined yet is the next call's") {
  const auto root = start_plane(), other = start_plane();
  const auto secret = *trust::random_secret();
  REQUIRE(root->create_root(secret).ok());
  require_meeting(*root, *other, secret);
}

TEST_CASE("a root's secret that is in use here is refused with what to do") {
  const auto root = start_plane();
  const auto secret = *trust::random_secret();
  const auto ours = root->create_root(secret);
  REQUIRE(ours.ok());
  const auto member = join(*root, *ours, 2, 0);
  const Status again = root->create_root(secret).status();
  CHECK(again.code() == Code::InvalidUsage);
  CHECK(again.message().find("wait until all ranks have joined it") != std::string_view::npos);
  CHECK_FALSE(member->failed());
}

TEST_CASE("a root whose name another process holds says so, and gets it later") {
  const auto root = start_plane(), other = start_plane();
  const auto secret = *trust::random_secret();
  {
    const FileDescriptor holder = listen_as(trust::id_on_this_host(secret)->root_listener);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Status refused = root->create_root(secret).status();
      INFO(refused.message());
      CHECK(refused.message().find("second process with rank 0") != std::string_view::npos);
      CHECK(refused.message().find("EADDRINUSE") != std::string_view::npos);
    }
  }
  require_meeting(*root, *other, secret);
}

}  // namespace named_root_test
