#include "lib/trust/tls_socket.h"

#include "lib/trust/openssl.h"

#include <cerrno>
#include <optional>
#include <sys/socket.h>

namespace gyre::trust {
namespace {

constexpr std::uint8_t record_alert = 21;
// Its hash is the key's: an external key belongs to one hash (RFC 8446, 4.2.11).
constexpr unsigned char cipher_number[] = {0x13, 0x01};
constexpr char cipher_name[] = "TLS_AES_128_GCM_SHA256";

struct SslSessionTraits {
  using Handle = SSL_SESSION*;
  static Handle none() { return nullptr; }
  static void close(Handle session) { SSL_SESSION_free(session); }
};

Owned<SslSessionTraits> make_session(SSL* ssl, const SessionKey& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, cipher_number);
  Owned<SslSessionTraits> session(SSL_SESSION_new());
  if (cipher == nullptr || !session.has_value() ||
      SSL_SESSION_set1_master_key(session.get(), key.psk.data(), key.psk.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1)
    return {};
  return session;
}

Result<Owned<SslContextTraits>> make_context(const SSL_METHOD* method) {
  Owned<SslContextTraits> context(SSL_CTX_new(method));
  if (!context.has_value()) return internal_error("OpenSSL offers no TLS");
  SSL_CTX* raw = context.get();
  if (SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, cipher_name) != 1)
    return internal_error("this OpenSSL lacks TLS 1.3 with AES-128-GCM");
  // OpenSSL 3.5 and later would offer a post-quantum group as well, whose key alone is longer than
  // the first words that a listener reads of an unauthenticated client. The keys that are agreed on
  // here protect words of minutes, and what they rest on is the shared secret.
  if (SSL_CTX_set1_groups_list(raw, "X25519:P-256") != 1 &&
      SSL_CTX_set1_groups_list(raw, "P-256") != 1)  // a FIPS provider has no X25519
    return internal_error("this OpenSSL lacks the groups X25519 and P-256");
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(raw, 0);  // nothing of a session outlives it
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  // A certificate is never good enough: there is no authority that could have signed it.
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_quiet_shutdown(raw, 1);
  return context;
}

}  // namespace

Result<std::unique_ptr<Tls>> Tls::create() {
  begin_openssl();
  auto tls = std::make_unique<Tls>();
  tls->method_ = Owned<BioMethodTraits>(
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gyre socket"));
  BIO_METHOD* method = tls->method_.get();
  if (method == nullptr || BIO_meth_set_write(method, &SocketBio::write) != 1 ||
      BIO_meth_set_read(method, &SocketBio::read) != 1 ||
      BIO_meth_set_ctrl(method, &SocketBio::control) != 1)
    return internal_error("OpenSSL takes no socket of ours");
  GYRE_ASSIGN(tls->client_, make_context(TLS_client_method()));
  GYRE_ASSIGN(tls->server_, make_context(TLS_server_method()));
  // A server that verifies peers takes no key without it.
  static constexpr unsigned char id_context[] = {'g', 'y', 'r', 'e'};
  SSL_CTX_set_session_id_context(tls->server_.get(), id_context, sizeof id_context);
  SSL_CTX_set_psk_use_session_callback(tls->client_.get(), &SocketPsk::use);
  SSL_CTX_set_psk_find_session_callback(tls->server_.get(), &SocketPsk::find);
  return tls;
}

int SocketBio::write(BIO* bio, const char* data, int length) {
  auto& secure = *static_cast<SecureSocket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  // An alert in clear would be an answer to an unauthenticated client.
  const bool to_stranger = secure.role_ == SessionRole::server && !secure.established_;
  if (to_stranger && length > 0 && static_cast<std::uint8_t>(data[0]) == record_alert)
    return length;
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(data),
                        static_cast<std::size_t>(length));
  if (secure.load_ == SecureLoad::bulk && secure.established_) {
    secure.leaving_.insert(secure.leaving_.end(), bytes.begin(), bytes.end());
    return length;
  }
  const std::optional<std::size_t> sent = secure.send(bytes);
  if (sent.has_value()) return static_cast<int>(*sent);
  BIO_set_retry_write(bio);
  return -1;
}

int SocketBio::read(BIO* bio, char* data, int length) {
  auto& secure = *static_cast<SecureSocket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (secure.is_empty_) {
    BIO_set_retry_read(bio);
    return -1;
  }
  ssize_t received = 0;
  do {
    received = ::recv(secure.socket_.get(), data, static_cast<std::size_t>(length), MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received > 0) {
    secure.heard_ = true;
    secure.is_empty_ = secure.load_ == SecureLoad::bulk && received < length;
    return static_cast<int>(received);
  }
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    BIO_set_retry_read(bio);
    return -1;
  }
  secure.ended_ = true;
  if (received < 0) secure.socket_error_ = errno;
  return received < 0 ? -1 : 0;
}

long SocketBio::control(BIO* bio, int command, long, void*) {
  const auto& secure = *static_cast<const SecureSocket*>(BIO_get_data(bio));
  if (command == BIO_CTRL_FLUSH) return 1;
  return command == BIO_CTRL_EOF && secure.ended_ ? 1 : 0;
}

int SocketPsk::use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                   std::size_t* identity_bytes, SSL_SESSION** session) {
  const auto& self = *static_cast<const SecureSocket*>(SSL_get_app_data(ssl));
  *session = nullptr;
  // A digest is named after a retry request; with one cipher it can only be ours.
  if (self.key_ == nullptr || (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256))
    return 0;
  *session = make_session(ssl, *self.key_).release();
  *identity = reinterpret_cast<const unsigned char*>(self.key_->identity.data());
  *identity_bytes = self.key_->identity.size();
  return *session == nullptr ? 0 : 1;
}

int SocketPsk::find(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
                    SSL_SESSION** session) {
  const auto& self = *static_cast<const SecureSocket*>(SSL_get_app_data(ssl));
  *session = nullptr;  // an unknown identity: the handshake ends without a certificate to offer
  if (self.key_ == nullptr || identity_bytes != self.key_->identity.size() ||
      CRYPTO_memcmp(identity, self.key_->identity.data(), identity_bytes) != 0)
    return 1;
  *session = make_session(ssl, *self.key_).release();
  return *session == nullptr ? 0 : 1;
}

}  // namespace gyre::trust
