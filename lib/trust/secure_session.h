// SecureSession: framed messages over one stream socket under TLS 1.3 with an external pre-shared
// key; no certificates, no cryptography of our own. It never blocks and never raises SIGPIPE. It
// does not know what the frames mean.
//
//   Tls     the settings of OpenSSL that all sessions of a process share
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/trust/frame.h"
#include "lib/trust/proof.h"
#include "lib/trust/session_key.h"

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::trust {

enum class SessionRole { client, server };

struct SslContextTraits {
  using Handle = SSL_CTX*;
  static Handle none() { return nullptr; }
  static void close(Handle context) { SSL_CTX_free(context); }
};
struct SslTraits {
  using Handle = SSL*;
  static Handle none() { return nullptr; }
  static void close(Handle ssl) { SSL_free(ssl); }
};
struct BioMethodTraits {
  using Handle = BIO_METHOD*;
  static Handle none() { return nullptr; }
  static void close(Handle method) { BIO_meth_free(method); }
};

class Tls {
 public:
  static Result<std::unique_ptr<Tls>> create();
  SSL_CTX* of(SessionRole role) const {
    return role == SessionRole::client ? client_.get() : server_.get();
  }
  const BIO_METHOD* socket_method() const { return method_.get(); }

 private:
  Owned<BioMethodTraits> method_;
  Owned<SslContextTraits> client_, server_;
};

// Used by one thread. A failure is sticky.
class SecureSession {
 public:
  // `socket` is connected (or will be once writable) and non-blocking; `tls` outlives the session.
  static Result<std::unique_ptr<SecureSession>> start(const Tls& tls, FileDescriptor socket,
                                                      SessionRole role,
                                                      std::shared_ptr<const SessionKey> key);
  ~SecureSession();

  // Moves bytes both ways as far as the socket goes without blocking. What the peer sent before it
  // closed is received before the closing is reported.
  Status advance();
  // True once both sides have proved that they know the key.
  bool established() const { return established_; }
  // More to send than the socket took: call advance when it is writable.
  bool wants_write() const { return blocked_on_write_; }
  bool flushed() const { return sent_ == outgoing_.size() && !blocked_on_write_; }

  // Queues a frame; advance or transmit sends it. Fails when the peer lets too much pile up.
  Status send(std::uint8_t type, std::span<const std::uint8_t> body);
  // The sending half of advance.
  Status transmit();
  std::optional<Frame> receive() { return intake_.receive(); }

  // Once established.
  Result<ChannelBinding> binding() const;

  int descriptor() const { return socket_.get(); }
  const Status& failure() const { return failure_; }
  // The peer closed its side without a socket error; a failure for all but data.
  bool closed_by_peer() const { return ended_ && socket_error_ == 0; }
  // The peer closed its side, or the socket broke.
  bool ended() const { return ended_; }
  // Why bytes that are sent go nowhere, which `transmit` does not say: a control connection reads
  // on and learns more. 0: they go.
  int send_error() const { return send_error_; }
  // True if the last advance got anything from the peer, be it of the handshake.
  bool heard() const { return heard_; }

 private:
  friend struct SessionBio;
  friend struct SessionPsk;
  SecureSession(FileDescriptor socket, SessionRole role, std::shared_ptr<const SessionKey> key);
  Status prepare(const Tls& tls);
  void begin();
  // Whether it can go on later: what OpenSSL reports is no failure, but a socket that is not ready.
  bool is_waiting(int error);
  Status shake_hands();
  Status write_out();
  Status collect();
  Status closed_status() const;
  Status fail(Status why);

  FileDescriptor socket_;
  const SessionRole role_;
  std::shared_ptr<const SessionKey> key_;  // until established
  const std::string_view name_;            // what the key opens
  Owned<SslTraits> ssl_;
  Status failure_;
  bool established_ = false;
  bool blocked_on_write_ = false;
  bool heard_ = false;
  bool ended_ = false;  // the peer closed, or the socket broke while reading
  int send_error_ = 0;  // bytes go nowhere; reading goes on to the end
  int socket_error_ = 0;
  std::vector<std::uint8_t> outgoing_;
  std::size_t sent_ = 0;
  FrameIntake intake_;
};

}  // namespace gyre::trust
