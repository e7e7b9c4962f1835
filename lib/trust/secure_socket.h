// SecureSocket: a byte stream over one socket under TLS 1.3 with an external pre-shared key; no
// certificates, no cryptography of our own. It never blocks and never raises SIGPIPE.
//
//   Tls   the settings of OpenSSL that all such sockets of a process share
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/trust/proof.h"
#include "lib/trust/session_key.h"

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::trust {

enum class SessionRole { client, server };
// `words`: few bytes, on a socket that mostly rests and then keeps no buffers. `bulk`: many.
enum class SecureLoad { words, bulk };

// The most that one TLS record carries.
inline constexpr std::size_t max_record_bytes = 16 << 10;
// Of a bulk load, with one key. Beyond 2^24.5 of them AES-GCM hides less than it should (RFC 8446,
// 5.5). A change costs a few microseconds.
inline constexpr std::uint32_t max_records_of_key = 1 << 16;

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
class SecureSocket {
 public:
  // `socket` is connected (or will be once writable) and non-blocking; `tls` outlives this.
  static Result<std::unique_ptr<SecureSocket>> start(const Tls& tls, FileDescriptor socket,
                                                     SessionRole role,
                                                     std::shared_ptr<const SessionKey> key,
                                                     SecureLoad load);
  ~SecureSocket();

  // Goes on with the handshake as far as the socket goes.
  Status shake_hands();
  // True once both sides have proved that they know the key.
  bool established() const { return established_; }
  // Once established; at most one record. Zero: the socket takes no more for now. Then the next
  // call begins with the same bytes, and has at least as many. Bytes of a bulk load are always
  // taken; to be called only if the socket blocks nothing. If more follows at once, they may leave
  // with that.
  Result<std::size_t> write(std::span<const std::uint8_t> bytes, bool more_follows);
  // Of a bulk load: encrypted, and not with the kernel yet.
  bool holds_bytes() const { return !leaving_.empty(); }
  void flush();
  // Once established. Zero: nothing has come. An error at the end: see `ended`.
  Result<std::size_t> read(std::span<std::uint8_t> place);
  // Before some calls of `read`: the kernel is asked again. For a bulk load, one answer of the
  // kernel that leaves it empty is enough for all of them.
  void look_again() { is_empty_ = false; }
  // Before some calls of `write`.
  void forget_block() { blocked_on_write_ = false; }

  // Once established.
  Result<ChannelBinding> binding() const;

  std::string_view cipher() const { return SSL_get_cipher_name(ssl_.get()); }

  int descriptor() const { return socket_.get(); }
  const Status& failure() const { return failure_; }
  Status fail(Status why);
  // More to send than the socket took.
  bool wants_write() const { return blocked_on_write_; }
  // The peer closed its side without a socket error; a failure for all but data.
  bool closed_by_peer() const { return ended_ && socket_error_ == 0; }
  // Its last record is not whole.
  bool is_cut_short() const { return ended_ && SSL_has_pending(ssl_.get()) == 1; }
  // The peer closed its side, or the socket broke.
  bool ended() const { return ended_; }
  // Why bytes that are sent go nowhere, which `write` does not say. 0: they go.
  int send_error() const { return send_error_; }
  // True if anything of the peer came since `forget_heard`, be it of the handshake.
  bool heard() const { return heard_; }
  void forget_heard() { heard_ = false; }

 private:
  friend struct SocketBio;
  friend struct SocketPsk;
  SecureSocket(FileDescriptor socket, SessionRole role, std::shared_ptr<const SessionKey> key,
               SecureLoad load);
  Status prepare(const Tls& tls);
  void begin();
  // Whether it can go on later: what OpenSSL reports is no failure, but a socket that is not ready.
  bool is_waiting(int error);
  Status try_handshake();
  // The number of bytes that the kernel took; nothing: it takes none for now. After an error bytes
  // go nowhere.
  std::optional<std::size_t> send(std::span<const std::uint8_t> bytes);
  Status closed_status() const;
  Status change_key();

  FileDescriptor socket_;
  const SessionRole role_;
  const SecureLoad load_;
  std::shared_ptr<const SessionKey> key_;  // until established
  const std::string_view name_;            // what the key opens
  Owned<SslTraits> ssl_;
  Status failure_;
  bool established_ = false;
  bool blocked_on_write_ = false;
  bool is_empty_ = false;  // the kernel had less than was asked for, since the last look
  bool heard_ = false;
  bool ended_ = false;  // the peer closed, or the socket broke while reading
  int send_error_ = 0;  // bytes go nowhere; reading goes on to the end
  int socket_error_ = 0;
  std::vector<std::uint8_t> leaving_;  // records of a bulk load
  std::size_t left_ = 0;               // bytes of them that the kernel has
  std::uint32_t records_ = 0;          // with the key at hand
};

}  // namespace gyre::trust
