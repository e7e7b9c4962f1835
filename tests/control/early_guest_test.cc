// Early guests: processes that link up with one that has not heard yet that all ranks have joined.
// They have heard it, and may say that they leave, and end, before it does.
#include "tests/support/control/scripted_job.h"

namespace early_guest_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;
using State = Membership::State;

TEST_CASE("who links up early, leaves and ends is not taken for dead") {
  ScriptedJob late;
  auto guest = std::make_unique<ScriptedPeer>(*late.plane, late.id, late.guest);
  guest->open_link(2);
  guest->say_on(2, Kind::hello, encode(HelloMessage{1, late.guest.process}));
  if (GENERATE(false, true)) {
    REQUIRE(late.departures.note(guest_rank));
    guest->say_on(2, Kind::departed, late.departures.encode());
  } else {
    guest->say_on(2, Kind::leave, encode_leave(guest_rank));
  }
  guest->open_link(4);
  const bool ends_first = GENERATE(false, true);
  CAPTURE(ends_first);
  if (ends_first) guest.reset();
  late.require_joined();
  guest.reset();
  late.root->say_on(late.root_link, Kind::leave, encode_leave(root_rank));
  CHECK(soon([&] { return late.member->has_left(root_rank); }));
  // Longer than a process that stays may be silent.
  const bool failed = soon([&] { return late.member->failed(); }, 1.8);
  INFO(late.member->failure().full_text());
  CHECK_FALSE(failed);
  CHECK(late.member->has_left(guest_rank));
  late.member->leave();
}

TEST_CASE("who links up early and dies is found dead") {
  ScriptedJob late;
  auto guest = std::make_unique<ScriptedPeer>(*late.plane, late.id, late.guest);
  guest->open_link(2);
  guest->say_on(2, Kind::hello, encode(HelloMessage{1, late.guest.process}));
  guest->open_link(4);
  const bool dies_first = GENERATE(false, true);
  CAPTURE(dies_first);
  if (dies_first) guest.reset();
  late.root->say_on(late.root_link, Kind::go, {});
  if (!dies_first) guest->next(Kind::welcome);
  guest.reset();
  REQUIRE(fails(*late.member, 1));
  CHECK(late.member->failure().culprits() == std::vector<int>{guest_rank});
}

TEST_CASE("a message of an early guest is read, though the guest has ended") {
  ScriptedJob late;
  auto guest = std::make_unique<ScriptedPeer>(*late.plane, late.id, late.guest);
  guest->open_link(2);
  guest->say_on(2, Kind::hello, encode(HelloMessage{1, late.guest.process}));
  const std::vector<std::uint8_t> words{1, 2, 3};
  guest->say_on(2, Kind::rank_message, encode(RankMessageHead{guest_rank, rank_here, 7, 1}, words));
  guest->say_on(2, Kind::leave, encode_leave(guest_rank));
  guest->open_link(4);
  guest.reset();
  late.require_joined();
  CHECK(next_message(*late.member, guest_rank, 7) == words);
  late.member->leave();
}

}  // namespace early_guest_test
