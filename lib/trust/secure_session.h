// SecureSession: framed messages over a SecureSocket. It does not know what the frames mean.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/trust/frame.h"
#include "lib/trust/proof.h"
#include "lib/trust/secure_socket.h"
#include "lib/trust/session_key.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gyre::trust {

// Used by one thread. A failure is sticky.
class SecureSession {
 public:
  // `socket` is connected (or will be once writable) and non-blocking; `tls` outlives the session.
  static Result<std::unique_ptr<SecureSession>> start(const Tls& tls, FileDescriptor socket,
                                                      SessionRole role,
                                                      std::shared_ptr<const SessionKey> key);

  // Moves bytes both ways as far as the socket goes without blocking. What the peer sent before it
  // closed is received before the closing is reported.
  Status advance();
  // True once both sides have proved that they know the key.
  bool established() const { return socket_->established(); }
  // More to send than the socket took: call advance when it is writable.
  bool wants_write() const { return socket_->wants_write(); }
  bool flushed() const { return sent_ == outgoing_.size() && !wants_write(); }

  // Queues a frame; advance or transmit sends it. Fails when the peer lets too much pile up.
  Status send(std::uint8_t type, std::span<const std::uint8_t> body);
  // The sending half of advance.
  Status transmit();
  std::optional<Frame> receive() { return intake_.receive(); }

  // Once established.
  Result<ChannelBinding> binding() const { return socket_->binding(); }

  int descriptor() const { return socket_->descriptor(); }
  const Status& failure() const { return socket_->failure(); }
  // The peer closed its side, or the socket broke.
  bool ended() const { return socket_->ended(); }
  // True if the last advance got anything from the peer, be it of the handshake.
  bool heard() const { return socket_->heard(); }

 private:
  explicit SecureSession(std::unique_ptr<SecureSocket> socket) : socket_(std::move(socket)) {}
  Status collect();

  const std::unique_ptr<SecureSocket> socket_;
  std::vector<std::uint8_t> outgoing_;
  std::size_t sent_ = 0;
  FrameIntake intake_;
};

}  // namespace gyre::trust
