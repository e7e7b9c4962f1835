#include "transports/tcp/byte_stream.h"

#include "lib/base/errno_text.h"
#include "transports/tcp/socket.h"

#include <cerrno>
#include <sys/socket.h>

namespace gyre::transport {
namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(std::shared_ptr<const FileDescriptor> socket) : socket_(std::move(socket)) {}

  bool joined() const override { return true; }
  Status join() override { return {}; }
  bool holds_bytes() const override { return false; }
  IoResult flush() override { return {}; }
  int descriptor() const override { return socket_->get(); }
  short wanted_events() const override { return 0; }

  IoResult send(std::span<iovec> parts) override {
    // A peer that is gone is an error here, not a signal that ends the process. One part alone
    // costs the kernel less to look at.
    constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (parts.size() == 1)
      return judge(::send(socket_->get(), parts[0].iov_base, parts[0].iov_len, flags));
    const msghdr message = message_of(parts);
    return judge(sendmsg(socket_->get(), &message, flags));
  }

  IoResult receive(std::span<iovec> parts) override {
    ssize_t got = 0;
    if (parts.size() == 1) {
      got = ::recv(socket_->get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message = message_of(parts);
      got = recvmsg(socket_->get(), &message, MSG_DONTWAIT);
    }
    if (got == 0) return {.outcome = IoResult::Outcome::closed, .cause = {}};
    return judge(got);
  }

 private:
  static msghdr message_of(std::span<iovec> parts) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return message;
  }
  static IoResult judge(ssize_t count) {
    if (count > 0) return {IoResult::Outcome::moved, static_cast<std::size_t>(count), {}};
    if (count == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return {.outcome = IoResult::Outcome::failed, .cause = errno_text(errno)};
  }

  const std::shared_ptr<const FileDescriptor> socket_;
};

}  // namespace

std::unique_ptr<ByteStream> make_plain_stream(std::shared_ptr<const FileDescriptor> socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace gyre::transport
