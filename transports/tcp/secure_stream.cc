#include "transports/tcp/secure_stream.h"

#include "lib/base/errno_text.h"
#include "lib/base/log.h"
#include "lib/trust/address.h"
#include "lib/trust/derive.h"
#include "transports/tcp/socket.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <poll.h>

namespace gyre::transport {
namespace {

using RecordBytes = std::span<const std::uint8_t>;

// Where a walk through the parts of a message is.
struct PartsPlace {
  std::span<const iovec> parts;
  std::size_t skip = 0;  // bytes of the first part

  RecordBytes next() const {
    return {static_cast<const std::uint8_t*>(parts[0].iov_base) + skip, parts[0].iov_len - skip};
  }
  void move(std::size_t bytes) {
    skip += bytes;
    while (!parts.empty() && skip >= parts[0].iov_len) {
      skip -= parts[0].iov_len;
      parts = parts.subspan(1);
    }
  }
};

class SecureStream final : public ByteStream {
 public:
  SecureStream(std::shared_ptr<const trust::Tls> tls, std::unique_ptr<trust::SecureSocket> socket)
      : tls_(std::move(tls)), socket_(std::move(socket)) {}

  bool joined() const override { return socket_->established(); }
  Status join() override;
  IoResult send(std::span<iovec> parts) override;
  IoResult receive(std::span<iovec> parts) override;
  bool has_heard() const override { return socket_->heard(); }
  bool holds_bytes() const override { return socket_->holds_bytes(); }
  IoResult flush() override;
  int descriptor() const override { return socket_->descriptor(); }
  short wanted_events() const override {
    const int input = joined() ? 0 : POLLIN;
    return static_cast<short>(input | (socket_->wants_write() ? POLLOUT : 0));
  }

 private:
  RecordBytes record_at(PartsPlace place);
  IoResult judge_sending() const;
  Result<std::size_t> fill(const iovec& part);
  IoResult end_of(const Status& why) const;

  const std::shared_ptr<const trust::Tls> tls_;
  const std::unique_ptr<trust::SecureSocket> socket_;
  std::array<std::uint8_t, trust::max_record_bytes> gathered_;
};

IoResult failed(const Status& status) {
  return {.outcome = IoResult::Outcome::failed, .cause = std::string(status.message())};
}

// The bytes of the next record: where they lie, if one part has a whole record's; else those of
// small parts together. A large part begins a record of its own.
RecordBytes SecureStream::record_at(PartsPlace place) {
  std::size_t count = 0;
  while (!place.parts.empty() && count < gathered_.size()) {
    const RecordBytes next = place.next();
    if (next.size() >= gathered_.size() && count == 0) return next.first(gathered_.size());
    if (next.size() >= gathered_.size()) break;
    const std::size_t bytes = std::min(next.size(), gathered_.size() - count);
    if (bytes > 0) std::memcpy(gathered_.data() + count, next.data(), bytes);
    count += bytes;
    place.move(bytes);
  }
  return RecordBytes(gathered_).first(count);
}

Status SecureStream::join() {
  GYRE_TRY(socket_->shake_hands());
  if (joined())
    log_info(Subsystem::net, "data between {} is under TLS 1.3 ({} by OpenSSL)",
             trust::format_path(descriptor()), socket_->cipher());
  return {};
}

// Nobody reads here who could learn it otherwise.
IoResult SecureStream::judge_sending() const {
  const int error = socket_->send_error();
  if (error == 0) return {};
  return {.outcome = IoResult::Outcome::failed, .cause = errno_text(error)};
}

IoResult SecureStream::flush() {
  socket_->flush();
  return judge_sending();
}

IoResult SecureStream::send(std::span<iovec> parts) {
  PartsPlace place{parts};
  place.move(0);
  std::size_t left = 0, taken = 0;
  for (const iovec& part : parts) left += part.iov_len;
  socket_->flush();
  while (taken < left && !socket_->wants_write()) {
    const RecordBytes record = record_at(place);
    const Result<std::size_t> sent = socket_->write(record, record.size() < left - taken);
    if (!sent.ok()) return failed(sent.status());
    taken += *sent;
    place.move(*sent);
  }
  IoResult result = judge_sending();
  if (taken > 0 && result.outcome != IoResult::Outcome::failed)
    result = {IoResult::Outcome::moved, taken, {}};
  return result;
}

Result<std::size_t> SecureStream::fill(const iovec& part) {
  const std::span place(static_cast<std::uint8_t*>(part.iov_base), part.iov_len);
  std::size_t filled = 0;
  while (filled < place.size()) {
    const Result<std::size_t> got = socket_->read(place.subspan(filled));
    // What came before the end still counts; the error comes again.
    if (filled == 0 && !got.ok()) return got;
    if (!got.ok() || *got == 0) break;
    filled += *got;
  }
  return filled;
}

IoResult SecureStream::receive(std::span<iovec> parts) {
  std::size_t total = 0;
  socket_->look_again();
  for (const iovec& part : parts) {
    const Result<std::size_t> filled = fill(part);
    if (!filled.ok() && total == 0) return end_of(filled.status());
    if (!filled.ok()) break;
    total += *filled;
    if (*filled < part.iov_len) break;
  }
  if (total == 0) return {};
  return {IoResult::Outcome::moved, total, {}};
}

IoResult SecureStream::end_of(const Status& why) const {
  if (socket_->is_cut_short())
    return failed(Status(Code::RemoteError, "the stream was cut short in a TLS record"));
  if (socket_->closed_by_peer()) return {.outcome = IoResult::Outcome::closed, .cause = {}};
  return failed(why);
}

}  // namespace

Result<std::shared_ptr<const trust::SessionKey>> data_key(const StreamSecret& secret) {
  auto key = std::make_shared<trust::SessionKey>();
  GYRE_TRY(trust::derive(secret, "data psk", key->psk));
  key->opens = "data connection";
  // The ticket has said already which link it is. The number changes with what the stream means.
  key->identity = "gyre-data-2";
  return std::shared_ptr<const trust::SessionKey>(std::move(key));
}

Result<std::unique_ptr<ByteStream>> make_stream(const StreamSecurity& security,
                                                std::shared_ptr<FileDescriptor> socket,
                                                trust::SessionRole role) {
  if (security.tls == nullptr) return make_plain_stream(std::move(socket));
  GYRE_ASSIGN(auto key, data_key(security.secret));
  GYRE_ASSIGN(auto secure, trust::SecureSocket::start(*security.tls, std::move(*socket), role,
                                                      std::move(key), trust::SecureLoad::bulk));
  return std::unique_ptr<ByteStream>(
      std::make_unique<SecureStream>(security.tls, std::move(secure)));
}

}  // namespace gyre::transport
