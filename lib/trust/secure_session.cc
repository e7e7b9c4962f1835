#include "lib/trust/secure_session.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

#include <algorithm>

namespace gyre::trust {
namespace {

// What may wait for a peer that does not read; a relay's worth of messages.
constexpr std::size_t max_outgoing = 64u << 20;
// One TLS record.
constexpr std::size_t record_bytes = 16 << 10;
// One call to advance reads at most this, so that one loud peer cannot hold the thread.
constexpr std::size_t max_collect = 256 << 10;

// Why OpenSSL failed: the peer's bytes; or this process's memory, of which it says nothing where
// there is not even enough for that.
Status openssl_failure(std::string_view what) {
  std::string text;
  bool no_memory = ERR_peek_error() == 0;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    if (text.empty() && reason != nullptr) text = reason;
    no_memory |= ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
  }
  if (no_memory) return Status(Code::SystemError, fmt::format("{}: out of memory", what));
  return Status(Code::RemoteError,
                fmt::format("{}: {}", what, text.empty() ? "OpenSSL does not say why" : text));
}

}  // namespace

SecureSession::SecureSession(FileDescriptor socket, SessionRole role,
                             std::shared_ptr<const SessionKey> key)
    : socket_(std::move(socket)), role_(role), key_(std::move(key)), name_(key_->opens) {}

SecureSession::~SecureSession() = default;

Result<std::unique_ptr<SecureSession>> SecureSession::start(const Tls& tls, FileDescriptor socket,
                                                            SessionRole role,
                                                            std::shared_ptr<const SessionKey> key) {
  std::unique_ptr<SecureSession> session(
      new SecureSession(std::move(socket), role, std::move(key)));
  GYRE_TRY(session->prepare(tls));
  return session;
}

Status SecureSession::prepare(const Tls& tls) {
  ssl_ = Owned<SslTraits>(SSL_new(tls.of(role_)));
  BIO* bio = ssl_.has_value() ? BIO_new(tls.socket_method()) : nullptr;
  if (bio == nullptr) return openssl_failure("making a session");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes it
  SSL_set_app_data(ssl_.get(), this);
  if (role_ == SessionRole::client)
    SSL_set_connect_state(ssl_.get());
  else
    SSL_set_accept_state(ssl_.get());
  return {};
}

Status SecureSession::advance() {
  heard_ = false;
  if (!failure_.ok()) return failure_;
  if (!established_) {
    Status shaken = shake_hands();
    if (!shaken.ok()) return fail(std::move(shaken));
    if (!established_) return {};
  }
  GYRE_TRY(transmit());
  Status collected = collect();
  if (!collected.ok()) return fail(std::move(collected));
  return {};
}

// What earlier calls left is not taken for this one's.
void SecureSession::begin() {
  ERR_clear_error();
  BIO_clear_retry_flags(SSL_get_rbio(ssl_.get()));
}

bool SecureSession::is_waiting(int error) {
  // OpenSSL also says so where it had no memory to note what failed: the socket knows better.
  const bool waits = BIO_should_retry(SSL_get_rbio(ssl_.get())) != 0;
  blocked_on_write_ |= waits && error == SSL_ERROR_WANT_WRITE;
  return waits && (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE);
}

Status SecureSession::shake_hands() {
  blocked_on_write_ = false;
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

Result<ChannelBinding> SecureSession::binding() const {
  constexpr std::string_view label = "EXPORTER-Channel-Binding";
  ChannelBinding binding;
  if (SSL_export_keying_material(ssl_.get(), binding.data(), binding.size(), label.data(),
                                 label.size(), nullptr, 0, 0) != 1)
    return internal_error("OpenSSL exports nothing to bind a proof to");
  return binding;
}

Status SecureSession::send(std::uint8_t type, std::span<const std::uint8_t> body) {
  if (!failure_.ok()) return failure_;
  if (body.size() + 1 > max_frame_bytes)
    return fail(internal_error(fmt::format("a frame of {} bytes is too long", body.size())));
  if (outgoing_.size() - sent_ + body.size() > max_outgoing)
    return fail(Status(Code::RemoteError, "the peer does not read what it is sent"));
  append_frame(type, body, outgoing_);
  return {};
}

Status SecureSession::transmit() {
  if (!failure_.ok() || !established_) return failure_;
  Status sent = write_out();
  return sent.ok() ? sent : fail(std::move(sent));
}

Status SecureSession::write_out() {
  blocked_on_write_ = false;
  while (sent_ < outgoing_.size()) {
    const std::size_t piece = std::min(outgoing_.size() - sent_, record_bytes);
    std::size_t taken = 0;
    begin();
    if (SSL_write_ex(ssl_.get(), outgoing_.data() + sent_, piece, &taken) == 1) {
      sent_ += taken;
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), 0);
    if (is_waiting(error)) break;
    return openssl_failure("sending failed");
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  } else if (sent_ > max_frame_bytes) {
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  return {};
}

Status SecureSession::collect() {
  std::uint8_t buffer[record_bytes];
  for (std::size_t total = 0; total < max_collect;) {
    std::size_t length = 0;
    begin();
    if (SSL_read_ex(ssl_.get(), buffer, sizeof buffer, &length) == 1) {
      total += length;
      GYRE_TRY(intake_.take({buffer, length}));
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), 0);
    if (ended_) return closed_status();
    if (is_waiting(error)) return {};
    return openssl_failure("receiving failed");
  }
  return {};
}

Status SecureSession::closed_status() const {
  if (socket_error_ != 0)
    return Status(Code::RemoteError,
                  fmt::format("its {} broke ({})", name_, strerrordesc_np(socket_error_)));
  return Status(Code::RemoteError, fmt::format("its {} closed", name_));
}

Status SecureSession::fail(Status why) {
  failure_ = why;
  key_.reset();
  return why;
}

}  // namespace gyre::trust
