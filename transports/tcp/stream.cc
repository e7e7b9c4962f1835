#include "transports/tcp/stream.h"

#include "lib/trust/address.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace gyre::transport {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(FileDescriptor socket) : socket_(std::move(socket)) {}

  bool joined() const override { return true; }
  Status join() override { return {}; }
  bool holds_bytes() const override { return false; }
  Transfer flush() override { return {}; }
  int descriptor() const override { return socket_.get(); }
  short wanted_events() const override { return 0; }

  Transfer send(std::span<iovec> parts) override {
    const msghdr message = message_of(parts);
    // A peer that is gone is an error here, not a signal that ends the process.
    return judge(sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  Transfer receive(std::span<iovec> parts) override {
    msghdr message = message_of(parts);
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got == 0) return {.outcome = Transfer::Outcome::closed, .cause = {}};
    return judge(got);
  }

 private:
  static msghdr message_of(std::span<iovec> parts) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return message;
  }
  static Transfer judge(ssize_t count) {
    if (count > 0) return {Transfer::Outcome::moved, static_cast<std::size_t>(count), {}};
    if (count == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return {.outcome = Transfer::Outcome::failed, .cause = errno_text(errno)};
  }

  const FileDescriptor socket_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(FileDescriptor socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

std::string errno_text(int error_number) {
  const char* name = strerrorname_np(error_number);
  return fmt::format("{} ({})", name != nullptr ? name : "errno", strerrordesc_np(error_number));
}

std::string peer_address(const FileDescriptor& socket) {
  trust::SocketAddress address;
  address.length = sizeof address.storage;
  if (getpeername(socket.get(), address.get(), &address.length) != 0) return "address unknown";
  return trust::format_address(address);
}

}  // namespace gyre::transport
