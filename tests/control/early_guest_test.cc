// Early guests: processes that link up with one that has not heard yet that all ranks have joined.
// They have heard it, and may say that they leave, and end, before it does.
#include "lib/control/departures.h"
#include "tests/support/control/scripted_peer.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <unistd.h>

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;
using State = Membership::State;

namespace {

constexpr int root_rank = 0, rank_here = 1, guest_rank = 2;

trust::ProcessIdentity new_process(const std::string& listener_name) {
  auto process = trust::describe_this_process();
  REQUIRE(process.ok());
  process->listener_name = listener_name;
  return *process;
}

// Rank 1 in a process of its own. The test speaks for the root, rank 0, and may speak for rank 2.
struct LateProcess {
  LateProcess() {
    Settings settings = loopback_settings();
    settings.liveness_timeout_s = 1;
    plane = start_plane(settings);
    id.secret = *trust::random_secret();
    id.root_host = plane->identity().host;
    id.root_listener = fmt::format("gyre-early-{}", getpid());
    const FileDescriptor listener =
        std::move(trust::listen_at(*trust::abstract_address(id.root_listener))).value();
    member = join(*plane, id, 3, rank_here, settings);
    FileDescriptor socket;
    REQUIRE(soon([&] {
      socket =
          FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      return socket.has_value();
    }));
    const auto root_process = new_process(id.root_listener);
    root = std::make_unique<ScriptedPeer>(std::move(socket), id, root_process);
    root_link = root->take_link();
    make_roster(root_process);
  }
  // It links up as a tree, and waits to hear that all others have as well.
  void make_roster(const trust::ProcessIdentity& root_process) {
    std::span<const std::uint8_t> body;
    const trust::Frame joins = root->next(Kind::join);
    REQUIRE(decode_on_link(joins.body, &body));
    RosterMessage message;
    message.liveness_ms = 1000;
    message.roster.processes = {root_process, guest, decode_join(body)->process};
    message.roster.process_of_rank = {0, 2, 1};
    message.roster.notes.resize(3);
    for (const auto& part : encode_parts(message)) root->say_on(root_link, Kind::roster, part);
    root->next(Kind::ready);
    departures = Departures(message.roster);
  }
  void hear_that_all_have_joined() {
    root->say_on(root_link, Kind::go, {});
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    REQUIRE(member->state() == State::joined);
  }

  std::unique_ptr<ControlPlane> plane;
  trust::UniqueId id;
  const trust::ProcessIdentity guest = new_process("gyre-early-guest");
  std::shared_ptr<Membership> member;
  std::unique_ptr<ScriptedPeer> root;
  std::uint64_t root_link = 0;
  Departures departures;
};

}  // namespace

TEST_CASE("who links up early, leaves and ends is not taken for dead") {
  LateProcess late;
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
  late.hear_that_all_have_joined();
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
  LateProcess late;
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
  LateProcess late;
  auto guest = std::make_unique<ScriptedPeer>(*late.plane, late.id, late.guest);
  guest->open_link(2);
  guest->say_on(2, Kind::hello, encode(HelloMessage{1, late.guest.process}));
  const std::vector<std::uint8_t> words{1, 2, 3};
  guest->say_on(2, Kind::rank_message, encode(RankMessageHead{guest_rank, rank_here, 7, 1}, words));
  guest->say_on(2, Kind::leave, encode_leave(guest_rank));
  guest->open_link(4);
  guest.reset();
  late.hear_that_all_have_joined();
  CHECK(next_message(*late.member, guest_rank, 7) == words);
  late.member->leave();
}
