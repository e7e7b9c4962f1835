#include "lib/trust/secure_socket.h"

#include "lib/base/descriptor_mark.h"
#include "lib/base/errno_text.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/socket.h>

namespace gyre::trust {
namespace {

// The kernel takes so many bytes of a stream at once; fewer cost nearly as much. With half of them,
// sends of 1 and 4 MiB over loopback took 1.1 times as long (AMD EPYC, Zen 4).
constexpr std::size_t flush_bytes = 128 << 10;

// Why OpenSSL failed: the peer's bytes; or this process's memory, of which it says nothing where
// there is not even enough for that.
Status openssl_failure(std::string_view what) {
  std::string text;
  bool no_memory = ERR_peek_error() == 0;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
        ERR_GET_REASON(code) == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC)
      reason = "a TLS record was changed, repeated, reordered or lost on the way";
    if (text.empty() && reason != nullptr) text = reason;
    no_memory |= ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
  }
  if (no_memory) return Status(Code::SystemError, fmt::format("{}: out of memory", what));
  return Status(Code::RemoteError,
                fmt::format("{}: {}", what, text.empty() ? "OpenSSL does not say why" : text));
}

}  // namespace

SecureSocket::SecureSocket(FileDescriptor socket, SessionRole role,
                           std::shared_ptr<const SessionKey> key, SecureLoad load)
    : socket_(std::move(socket)),
      role_(role),
      load_(load),
      key_(std::move(key)),
      name_(key_->opens) {}

SecureSocket::~SecureSocket() = default;

Result<std::unique_ptr<SecureSocket>> SecureSocket::start(const Tls& tls, FileDescriptor socket,
                                                          SessionRole role,
                                                          std::shared_ptr<const SessionKey> key,
                                                          SecureLoad load) {
  std::unique_ptr<SecureSocket> made(
      new SecureSocket(std::move(socket), role, std::move(key), load));
  GYRE_TRY(made->prepare(tls));
  return made;
}

Status SecureSocket::prepare(const Tls& tls) {
  ssl_ = Owned<SslTraits>(SSL_new(tls.of(role_)));
  BIO* bio = ssl_.has_value() ? BIO_new(tls.socket_method()) : nullptr;
  if (bio == nullptr) return openssl_failure("making a session");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes it
  SSL_set_app_data(ssl_.get(), this);
  if (load_ == SecureLoad::bulk) {
    // A record with one call of the kernel, not its head and then its body.
    SSL_set_read_ahead(ssl_.get(), 1);
    SSL_clear_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
  }
  if (role_ == SessionRole::client)
    SSL_set_connect_state(ssl_.get());
  else
    SSL_set_accept_state(ssl_.get());
  return {};
}

// What earlier calls left is not taken for this one's.
void SecureSocket::begin() {
  ERR_clear_error();
  BIO_clear_retry_flags(SSL_get_rbio(ssl_.get()));
}

bool SecureSocket::is_waiting(int error) {
  // OpenSSL also says so where it had no memory to note what failed: the socket knows better.
  const bool waits = BIO_should_retry(SSL_get_rbio(ssl_.get())) != 0;
  blocked_on_write_ |= waits && error == SSL_ERROR_WANT_WRITE;
  return waits && (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE);
}

Status SecureSocket::shake_hands() {
  if (!failure_.ok() || established_) return failure_;
  look_again();
  Status shaken = try_handshake();
  return shaken.ok() ? shaken : fail(std::move(shaken));
}

Status SecureSocket::try_handshake() {
  forget_block();
  begin();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (!ended_ && is_waiting(error)) return {};
    if (ended_)
      return Status(Code::RemoteError,
                    fmt::format("its {} was closed during the handshake", name_));
    return openssl_failure("the handshake failed");
  }
  // Without the key there is no certificate that could have stood in for it; to be sure, ask.
  if (SSL_session_reused(ssl_.get()) != 1)
    return Status(Code::RemoteError, "the peer did not prove that it knows the secret");
  established_ = true;
  key_.reset();
  return {};
}

Result<ChannelBinding> SecureSocket::binding() const {
  constexpr std::string_view label = "EXPORTER-Channel-Binding";
  ChannelBinding binding;
  if (SSL_export_keying_material(ssl_.get(), binding.data(), binding.size(), label.data(),
                                 label.size(), nullptr, 0, 0) != 1)
    return internal_error("OpenSSL exports nothing to bind a proof to");
  return binding;
}

Result<std::size_t> SecureSocket::write(std::span<const std::uint8_t> bytes, bool more_follows) {
  if (!failure_.ok()) return failure_;
  const std::size_t piece = std::min(bytes.size(), max_record_bytes);
  GYRE_TRY(change_key());
  forget_block();
  std::size_t taken = 0;
  begin();
  if (SSL_write_ex(ssl_.get(), bytes.data(), piece, &taken) == 1) {
    if (!more_follows || leaving_.size() >= flush_bytes) flush();
    return taken;
  }
  if (is_waiting(SSL_get_error(ssl_.get(), 0))) return std::size_t{0};
  return fail(openssl_failure("sending failed"));
}

// The next record of a bulk load says so to the peer.
Status SecureSocket::change_key() {
  if (load_ == SecureLoad::words || ++records_ < max_records_of_key) return {};
  records_ = 0;
  begin();
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) return {};
  return fail(openssl_failure("changing the key failed"));
}

void SecureSocket::flush() {
  forget_block();
  while (left_ < leaving_.size() && !blocked_on_write_) {
    const std::optional<std::size_t> sent = send(std::span(leaving_).subspan(left_));
    blocked_on_write_ = !sent.has_value();
    left_ += sent.value_or(0);
  }
  if (left_ < leaving_.size()) return;
  leaving_.clear();
  left_ = 0;
}

std::optional<std::size_t> SecureSocket::send(std::span<const std::uint8_t> bytes) {
  // Where the program has closed our descriptors, the socket's number may be a file of its own.
  if (send_error_ == 0 && !descriptor_mark_stands()) send_error_ = EBADF;
  if (send_error_ != 0) return bytes.size();
  ssize_t sent = 0;
  do {
    sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
  // The peer is gone; what it had sent before is still to be read, and may say why.
  send_error_ = socket_error_ = errno;
  return bytes.size();
}

Result<std::size_t> SecureSocket::read(std::span<std::uint8_t> place) {
  if (!failure_.ok()) return failure_;
  std::size_t length = 0;
  begin();
  if (SSL_read_ex(ssl_.get(), place.data(), place.size(), &length) == 1) return length;
  const int error = SSL_get_error(ssl_.get(), 0);
  if (ended_) return fail(closed_status());
  if (is_waiting(error)) return std::size_t{0};
  return fail(openssl_failure("receiving failed"));
}

Status SecureSocket::closed_status() const {
  if (socket_error_ != 0)
    return Status(Code::RemoteError,
                  fmt::format("its {} broke ({})", name_, errno_description(socket_error_)));
  return Status(Code::RemoteError, fmt::format("its {} closed", name_));
}

Status SecureSocket::fail(Status why) {
  failure_ = why;
  key_.reset();
  return why;
}

}  // namespace gyre::trust
