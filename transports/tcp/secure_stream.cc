#include "transports/tcp/secure_stream.h"

#include "lib/trust/derive.h"
#include "transports/tcp/socket.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <vector>

namespace gyre::transport {
namespace {

constexpr std::uint8_t stream_frame = 1;
// Four TLS records: the other end can use a piece as soon as it is whole.
constexpr std::size_t piece_bytes = 64 << 10;

class SecureStream final : public ByteStream {
 public:
  SecureStream(std::shared_ptr<const trust::Tls> tls, std::unique_ptr<trust::SecureSession> session)
      : tls_(std::move(tls)), session_(std::move(session)) {}

  bool joined() const override { return session_->established(); }
  Status join() override {
    const Status status = session_->advance();
    has_heard_ |= session_->heard();
    // A short-lived sender's bytes and its end can come with the handshake's last message.
    return joined() ? Status() : status;
  }
  IoResult send(std::span<iovec> parts) override;
  IoResult receive(std::span<iovec> parts) override;
  bool has_heard() const override { return has_heard_; }
  bool holds_bytes() const override { return !session_->flushed(); }
  IoResult flush() override;
  int descriptor() const override { return session_->descriptor(); }
  short wanted_events() const override {
    const int input = joined() ? 0 : POLLIN;
    return static_cast<short>(input | (session_->wants_write() ? POLLOUT : 0));
  }

 private:
  Status transmit();
  bool next_piece();
  // Bytes that are decrypted already, as many as there are and the parts hold.
  std::size_t give(std::span<const iovec> parts);

  const std::shared_ptr<const trust::Tls> tls_;
  const std::unique_ptr<trust::SecureSession> session_;
  bool has_heard_ = false;
  std::vector<std::uint8_t> leaving_;
  trust::Frame arrived_;
  std::size_t used_ = 0;  // bytes of it that the user has
};

IoResult failed(const Status& status) {
  return {.outcome = IoResult::Outcome::failed, .cause = std::string(status.message())};
}

// Nobody reads here who could learn it otherwise.
Status SecureStream::transmit() {
  GYRE_TRY(session_->transmit());
  const int error = session_->send_error();
  return error == 0 ? Status() : Status(Code::RemoteError, errno_text(error));
}

IoResult SecureStream::flush() {
  const Status sent = transmit();
  return sent.ok() ? IoResult{} : failed(sent);
}

IoResult SecureStream::send(std::span<iovec> parts) {
  std::size_t taken = 0;
  std::size_t skip = 0;  // bytes of the first part that are taken
  while (session_->flushed() && !parts.empty()) {
    leaving_.clear();
    while (!parts.empty() && leaving_.size() < piece_bytes) {
      const auto* data = static_cast<const std::uint8_t*>(parts[0].iov_base) + skip;
      const std::size_t bytes = std::min(parts[0].iov_len - skip, piece_bytes - leaving_.size());
      leaving_.insert(leaving_.end(), data, data + bytes);
      skip += bytes;
      if (skip < parts[0].iov_len) continue;
      parts = parts.subspan(1);
      skip = 0;
    }
    Status sent = session_->send(stream_frame, leaving_);
    if (sent.ok()) sent = transmit();
    if (!sent.ok()) return failed(sent);
    taken += leaving_.size();
  }
  if (taken == 0) return flush();
  return {IoResult::Outcome::moved, taken, {}};
}

bool SecureStream::next_piece() {
  std::optional<trust::Frame> next = session_->receive();
  if (!next.has_value()) return false;
  arrived_ = std::move(*next);
  used_ = 0;
  return true;
}

std::size_t SecureStream::give(std::span<const iovec> parts) {
  std::size_t total = 0;
  for (const iovec& part : parts) {
    for (std::size_t given = 0; given < part.iov_len;) {
      if (used_ == arrived_.body.size() && !next_piece()) return total;
      const std::size_t bytes = std::min(part.iov_len - given, arrived_.body.size() - used_);
      auto* place = static_cast<std::byte*>(part.iov_base) + given;
      if (bytes > 0) std::memcpy(place, arrived_.body.data() + used_, bytes);
      used_ += bytes;
      given += bytes;
      total += bytes;
    }
  }
  return total;
}

IoResult SecureStream::receive(std::span<iovec> parts) {
  std::size_t given = give(parts);
  Status status;
  if (given == 0) {
    // It may bring pieces and the end at once: pieces first.
    status = session_->advance();
    given = give(parts);
  }
  if (given > 0) return {IoResult::Outcome::moved, given, {}};
  if (status.ok()) return {};
  if (session_->closed_by_peer()) return {.outcome = IoResult::Outcome::closed, .cause = {}};
  return failed(status);
}

}  // namespace

Result<std::unique_ptr<ByteStream>> make_stream(const StreamSecurity& security,
                                                std::shared_ptr<FileDescriptor> socket,
                                                trust::SessionRole role) {
  if (security.tls == nullptr) return make_plain_stream(std::move(socket));
  const auto key = std::make_shared<trust::SessionKey>();
  GYRE_TRY(trust::derive(security.secret, "data psk", key->psk));
  key->opens = "data connection";
  key->identity = "gyre-data-1";  // the ticket has said already which link it is
  GYRE_ASSIGN(auto session,
              trust::SecureSession::start(*security.tls, std::move(*socket), role, key));
  return std::unique_ptr<ByteStream>(
      std::make_unique<SecureStream>(security.tls, std::move(session)));
}

}  // namespace gyre::transport
