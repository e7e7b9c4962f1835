// ScriptedPeer: the other end of a control plane's trunk, whose every frame a test says itself. It
// has a communicator's secret, and greets as whoever the test claims that it is.
#pragma once

#include "lib/control/messages.h"
#include "lib/trust/address.h"
#include "lib/trust/secure_session.h"
#include "tests/support/control/meeting.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gyre::test {

class ScriptedPeer {
 public:
  using Kind = control::Kind;

  // Dials.
  ScriptedPeer(const ControlPlane& plane, const trust::UniqueId& id,
               const trust::ProcessIdentity& claimed)
      : ScriptedPeer(dial(plane), trust::SessionRole::client, id, claimed) {}
  // `socket` was accepted by a listener that stands for the claimed process.
  ScriptedPeer(FileDescriptor socket, const trust::UniqueId& id,
               const trust::ProcessIdentity& claimed)
      : ScriptedPeer(std::move(socket), trust::SessionRole::server, id, claimed) {}

  void say(Kind kind, const std::vector<std::uint8_t>& body) {
    REQUIRE(session_->send(static_cast<std::uint8_t>(kind), body).ok());
    REQUIRE(session_->transmit().ok());
  }
  void say_on(std::uint64_t link, Kind kind, const std::vector<std::uint8_t>& body) {
    say(kind, control::encode_on_link(link, body));
  }
  // The next frame but for greetings and pings; none when the session has ended.
  std::optional<trust::Frame> next() {
    std::optional<trust::Frame> frame;
    soon([&] {
      const bool stands = session_->advance().ok();
      while ((frame = session_->receive())) {
        const auto kind = static_cast<Kind>(frame->type);
        if (kind != Kind::ping && kind != Kind::greeting) return true;
      }
      return !stands;
    });
    return frame;
  }
  trust::Frame next(Kind kind) {
    const std::optional<trust::Frame> frame = next();
    REQUIRE(frame);
    REQUIRE(static_cast<Kind>(frame->type) == kind);
    return *frame;
  }
  trust::ChannelBinding binding() const { return *session_->binding(); }

  // Opens a link, and returns when the plane has answered: it has read all that was said before.
  void open_link(std::uint64_t link) {
    say(Kind::open,
        encode(control::OpenMessage{link, key_->identity, proof(trust::Prover::opener, link)}));
    next(Kind::opened);
  }
  // Takes the link that the plane opens; its number.
  std::uint64_t take_link() {
    const auto open = control::decode_open(next(Kind::open).body);
    REQUIRE(open);
    say(Kind::opened,
        encode(control::OpenedMessage{open->link, proof(trust::Prover::answerer, open->link)}));
    return open->link;
  }

 private:
  ScriptedPeer(FileDescriptor socket, trust::SessionRole role, const trust::UniqueId& id,
               const trust::ProcessIdentity& claimed)
      : tls_(std::move(trust::Tls::create()).value()), key_(*trust::derive_control_key(id)) {
    session_ = std::move(trust::SecureSession::start(*tls_, std::move(socket), role, key_)).value();
    REQUIRE(soon([&] { return session_->advance().ok() && session_->established(); }));
    say(Kind::greeting, control::encode_greeting(claimed));
  }
  static FileDescriptor dial(const ControlPlane& plane) {
    bool pending = false;
    auto socket =
        trust::begin_connect(*trust::abstract_address(plane.identity().listener_name), &pending);
    REQUIRE(socket.ok());
    return std::move(*socket);
  }
  trust::KeyProof proof(trust::Prover who, std::uint64_t link) const {
    return *trust::prove(*key_, binding(), who, link);
  }

  std::unique_ptr<trust::Tls> tls_;
  std::shared_ptr<const trust::SessionKey> key_;
  std::unique_ptr<trust::SecureSession> session_;
};

}  // namespace gyre::test
