#include "transports/tcp/dialer.h"

#include "lib/base/clock.h"
#include "lib/base/errno_text.h"
#include "lib/trust/address.h"
#include "transports/tcp/socket.h"

#include <fmt/core.h>

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

namespace gyre::transport {
namespace {

// Long enough for two lost SYNs (sent again after 1 s and 3 s), short enough that a dead first
// address of several does not use up the time to meet.
constexpr std::int64_t attempt_ns = 5 * ns_per_s;

// With nobody listening at a port that the kernel also hands out, a socket can connect to itself.
bool connected_to_itself(const FileDescriptor& socket) {
  trust::SocketAddress here, there;
  here.length = there.length = sizeof here.storage;
  return getsockname(socket.get(), here.get(), &here.length) == 0 &&
         getpeername(socket.get(), there.get(), &there.length) == 0 &&
         trust::format_address(here) == trust::format_address(there);
}

}  // namespace

TcpDialer::TcpDialer(std::vector<std::string> addresses, const trust::Ticket& ticket,
                     const TransportEnvironment& environment)
    : addresses_(std::move(addresses)),
      ticket_(ticket),
      own_addresses_(environment.self.addresses),
      liveness_ns_(environment.liveness_ns) {}

Result<std::optional<FileDescriptor>> TcpDialer::advance() {
  if (losses_.pauses()) return std::optional<FileDescriptor>();
  if (!socket_.has_value()) GYRE_TRY(begin_next());
  if (!socket_.has_value()) return std::optional<FileDescriptor>();
  switch (answer()) {
    case ConnectResult::connected:
      silent_since_ns_ = 0;
      GYRE_TRY(show_ticket(socket_, ticket_).while_doing(addresses_[next_ - 1]));
      return std::optional<FileDescriptor>(std::move(socket_));
    case ConnectResult::refused:
      silent_since_ns_ = 0;
      socket_.reset();
      break;
    case ConnectResult::pending:
      GYRE_TRY(check_silence());
      if (SystemClock::read() < give_up_ns_) break;
      refuse("no answer");
      hopeful_ = true;
      socket_.reset();
  }
  return std::optional<FileDescriptor>();
}

// Half a second more: the second SYN leaves after a second.
Status TcpDialer::check_silence() {
  const std::int64_t silent_ns = SystemClock::read() - silent_since_ns_;
  if (silent_since_ns_ == 0 || silent_ns < liveness_ns_ + ns_per_s / 2) return {};
  met_silence_ = true;
  return Status(Code::RemoteError,
                fmt::format("no answer from {} for {:.1f} s: the network to it is cut, or the host "
                            "is down",
                            addresses_[next_ - 1], static_cast<double>(silent_ns) / ns_per_s));
}

Status TcpDialer::again(std::string_view why) {
  hopeful_ = true;
  return losses_.note(why);
}

Status TcpDialer::begin_next() {
  if (next_ == addresses_.size()) {
    if (!hopeful_)
      return Status(Code::RemoteError, fmt::format("none of its addresses accepts a connection: {}",
                                                   refusals_.empty() ? "it has none" : refusals_));
    next_ = 0;
    hopeful_ = false;
    refusals_.clear();
  }
  Result<FileDescriptor> socket = begin(addresses_[next_++]);
  if (socket.status().code() == Code::SystemError) return std::move(socket).status();
  if (!socket.ok()) return refuse(socket.status().message()), Status();
  socket_ = std::move(*socket);
  if (silent_since_ns_ == 0) silent_since_ns_ = SystemClock::read();
  give_up_ns_ = SystemClock::read() + attempt_ns;
  return {};
}

Result<FileDescriptor> TcpDialer::begin(const std::string& text) const {
  GYRE_ASSIGN(const trust::SocketAddress address, trust::parse_address(text));
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.has_value()) return failure_on_the_way("socket", errno);
  GYRE_TRY(set_sending(socket));
  if (leads_to_this_host(text, own_addresses_)) prefer_reno(socket);
  if (connect(socket.get(), address.get(), address.length) == 0 || errno == EINPROGRESS)
    return socket;
  return failure_on_the_way("connect", errno);
}

TcpDialer::ConnectResult TcpDialer::answer() {
  pollfd ready{socket_.get(), POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) return ConnectResult::pending;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0 && connected_to_itself(socket_)) error = ECONNREFUSED;
  if (error == 0) return ConnectResult::connected;
  refuse(errno_text(error));
  return ConnectResult::refused;
}

void TcpDialer::refuse(std::string_view why) {
  refusals_ += fmt::format("{}{}: {}", refusals_.empty() ? "" : "; ", addresses_[next_ - 1], why);
}

}  // namespace gyre::transport
