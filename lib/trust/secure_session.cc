#include "lib/trust/secure_session.h"

#include <fmt/core.h>

namespace gyre::trust {
namespace {

// What may wait for a peer that does not read; a relay's worth of messages.
constexpr std::size_t max_outgoing = 64u << 20;
// One call to advance reads at most this, so that one loud peer cannot hold the thread.
constexpr std::size_t max_collect = 256 << 10;

}  // namespace

Result<std::unique_ptr<SecureSession>> SecureSession::start(const Tls& tls, FileDescriptor socket,
                                                            SessionRole role,
                                                            std::shared_ptr<const SessionKey> key) {
  GYRE_ASSIGN(auto secure,
              SecureSocket::start(tls, std::move(socket), role, std::move(key), SecureLoad::words));
  return std::unique_ptr<SecureSession>(new SecureSession(std::move(secure)));
}

Status SecureSession::advance() {
  socket_->forget_heard();
  GYRE_TRY(socket_->shake_hands());
  if (!established()) return {};
  GYRE_TRY(transmit());
  return collect();
}

Status SecureSession::send(std::uint8_t type, std::span<const std::uint8_t> body) {
  if (!failure().ok()) return failure();
  if (body.size() + 1 > max_frame_bytes)
    return socket_->fail(
        internal_error(fmt::format("a frame of {} bytes is too long", body.size())));
  if (outgoing_.size() - sent_ + body.size() > max_outgoing)
    return socket_->fail(Status(Code::RemoteError, "the peer does not read what it is sent"));
  append_frame(type, body, outgoing_);
  return {};
}

Status SecureSession::transmit() {
  if (!failure().ok() || !established()) return failure();
  socket_->forget_block();
  while (sent_ < outgoing_.size()) {
    GYRE_ASSIGN(const std::size_t taken,
                socket_->write(std::span(outgoing_).subspan(sent_), false));
    if (taken == 0) break;
    sent_ += taken;
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
  std::uint8_t buffer[max_record_bytes];
  socket_->look_again();
  for (std::size_t total = 0; total < max_collect;) {
    GYRE_ASSIGN(const std::size_t length, socket_->read(buffer));
    if (length == 0) return {};
    total += length;
    Status taken = intake_.take({buffer, length});
    if (!taken.ok()) return socket_->fail(std::move(taken));
  }
  return {};
}

}  // namespace gyre::trust
