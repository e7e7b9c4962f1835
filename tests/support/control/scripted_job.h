// ScriptedJob: a job of three ranks in three processes. One is real, and the test says every word
// of the two others: of the root, whose link with the real one stands, and of a guest, which may
// dial or be dialed.
#pragma once

#include "lib/control/departures.h"
#include "tests/support/control/scripted_peer.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace gyre::test {

inline constexpr int root_rank = 0, rank_here = 1, guest_rank = 2;

inline trust::ProcessIdentity new_process(const std::string& listener_name) {
  auto process = trust::describe_this_process();
  REQUIRE(process.ok());
  process->listener_name = listener_name;
  return *process;
}

inline FileDescriptor listen_as(const std::string& name) {
  return std::move(trust::listen_at(*trust::abstract_address(name))).value();
}

inline FileDescriptor accept_soon(const FileDescriptor& listener) {
  FileDescriptor socket;
  REQUIRE(soon([&] {
    socket =
        FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return socket.has_value();
  }));
  return socket;
}

// A process whose rank joins a job, and the root of it, every word of which the test says.
struct ScriptedRoot {
  using Kind = control::Kind;

  ScriptedRoot(int size, int rank) {
    Settings settings = loopback_settings();
    settings.liveness_timeout_s = 1;
    plane = start_plane(settings);
    id.secret = *trust::random_secret();
    id.root_host = plane->identity().host;
    id.root_listener = fmt::format("gyre-root-{}", getpid());
    root_process = new_process(id.root_listener);
    listener = listen_as(id.root_listener);
    member = join(*plane, id, size, rank, settings);
    accept_root();
  }
  void accept_root() {
    root = std::make_unique<ScriptedPeer>(accept_soon(listener), id, root_process);
    root_link = root->take_link();
  }

  std::unique_ptr<ControlPlane> plane;
  trust::UniqueId id;
  trust::ProcessIdentity root_process;
  FileDescriptor listener;
  std::shared_ptr<Membership> member;
  std::unique_ptr<ScriptedPeer> root;
  std::uint64_t root_link = 0;
};

struct ScriptedJob : ScriptedRoot {
  // The first connection to the root may break when the rank has joined over it.
  explicit ScriptedJob(bool breaks_once = false) : ScriptedRoot(3, rank_here) {
    if (breaks_once) {
      root->next(Kind::join);
      root.reset();
      accept_root();
    }
    make_roster();
    listener.reset();  // nobody else is to come
  }
  // It links up as a tree, and waits to hear that all others have as well.
  void make_roster() {
    std::span<const std::uint8_t> body;
    const trust::Frame joins = root->next(Kind::join);
    REQUIRE(control::decode_on_link(joins.body, &body));
    control::RosterMessage message;
    message.liveness_ms = 1000;
    message.roster.processes = {root_process, guest, control::decode_join(body)->process};
    message.roster.process_of_rank = {0, 2, 1};
    message.roster.notes.resize(3);
    for (const auto& part : control::encode_parts(message))
      root->say_on(root_link, Kind::roster, part);
    root->next(Kind::ready);
    departures = control::Departures(message.roster);
  }
  void require_joined() {
    root->say_on(root_link, Kind::go, {});
    REQUIRE(settles(*member));
    INFO(member->failure().full_text());
    REQUIRE(member->state() == Membership::State::joined);
  }

  // The root leaves, and its process ends at once.
  void end_root() {
    root->say_on(root_link, Kind::leave, control::encode_leave(root_rank));
    REQUIRE(soon([&] { return member->has_left(root_rank); }));
    root.reset();
  }

  const trust::ProcessIdentity guest = new_process(fmt::format("gyre-guest-{}", getpid()));
  control::Departures departures;
};

}  // namespace gyre::test
