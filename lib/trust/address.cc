#include "lib/trust/address.h"

#include "lib/base/settings.h"
#include "lib/base/shortage.h"

#include <fmt/core.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

namespace gyre::trust {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int listen_backlog = 4096;

SocketAddress make_v4(const in_addr& host, std::uint16_t port) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr = host;
  v4.sin_port = htons(port);
  SocketAddress address;
  std::memcpy(&address.storage, &v4, sizeof v4);
  address.length = sizeof v4;
  return address;
}

SocketAddress make_v6(const in6_addr& host, std::uint16_t port) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = host;
  v6.sin6_port = htons(port);
  SocketAddress address;
  std::memcpy(&address.storage, &v6, sizeof v6);
  address.length = sizeof v6;
  return address;
}

// Without it whoever says two things in a row waits up to 40 ms for the other side's delayed
// acknowledgement of the first.
Status send_at_once(const FileDescriptor& socket) {
  const int one = 1;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0) return {};
  return Status::from_errno("setsockopt TCP_NODELAY", errno);
}

}  // namespace

std::string_view host_of(std::string_view address) { return address.substr(0, address.rfind(':')); }

Result<SocketAddress> parse_address(std::string_view text) {
  const Status malformed =
      invalid_argument(fmt::format("'{}' is no address; use 1.2.3.4:80 or [::1]:80", text));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return malformed;
  const Result<std::int64_t> port = parse_integer(text.substr(colon + 1), 0, 65535);
  if (!port.ok()) return malformed;
  const auto number = static_cast<std::uint16_t>(port.value());
  std::string host(text.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    in6_addr v6 = {};
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return malformed;
    return make_v6(v6, number);
  }
  in_addr v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4) != 1) return malformed;
  return make_v4(v4, number);
}

std::string format_address(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return fmt::format("{}:{}", host, ntohs(v4.sin_port));
  }
  if (address.family() == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address.storage, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
  }
  constexpr std::size_t start = offsetof(sockaddr_un, sun_path) + 1;
  if (address.family() == AF_UNIX && address.length > start)
    return fmt::format(
        "@{}", std::string_view(reinterpret_cast<const char*>(&address.storage), address.length)
                   .substr(start));
  return "a socket of this host";
}

Result<SocketAddress> abstract_address(std::string_view name) {
  sockaddr_un local = {};
  if (name.empty() || name.size() + 1 > sizeof local.sun_path)
    return invalid_argument(fmt::format("'{}' is no name for an abstract socket", name));
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  SocketAddress address;
  std::memcpy(&address.storage, &local, sizeof local);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string format_path(int socket) {
  SocketAddress own, peer;
  own.length = peer.length = sizeof own.storage;
  const bool known = getsockname(socket, own.get(), &own.length) == 0 &&
                     getpeername(socket, peer.get(), &peer.length) == 0;
  return known ? fmt::format("{} to {}", format_address(own), format_address(peer))
               : "an unknown address";
}

Result<FileDescriptor> listen_at(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.has_value()) return Status::from_errno("socket for a listener", errno);
  if (address.family() != AF_UNIX) {
    // What it accepts inherits both. Pacing that BBR has switched on stays on, whatever a socket
    // takes up later; from Reno every way is open.
    constexpr std::string_view reno = "reno";
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, reno.data(), reno.size());
    GYRE_TRY(send_at_once(socket));
  }
  if (::bind(socket.get(), address.get(), address.length) != 0)
    return Status::from_errno(fmt::format("binding {}", format_address(address)), errno);
  if (::listen(socket.get(), listen_backlog) != 0)
    return Status::from_errno(fmt::format("listening at {}", format_address(address)), errno);
  return socket;
}

FileDescriptor accept_at(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.has_value() || !is_shortage(errno)) return socket;
  const int shortage = errno;
  pollfd waiting{listener.get(), POLLIN, 0};
  errno = ::poll(&waiting, 1, 0) == 0 ? EAGAIN : shortage;
  return socket;
}

Result<FileDescriptor> begin_connect(const SocketAddress& address, bool* pending) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.has_value()) return Status::from_errno("socket for a connection", errno);
  if (address.family() != AF_UNIX) GYRE_TRY(send_at_once(socket));
  *pending = false;
  if (::connect(socket.get(), address.get(), address.length) == 0) return socket;
  if (errno != EINPROGRESS) {
    const Status failed =
        Status::from_errno(fmt::format("connecting to {}", format_address(address)), errno);
    return Status(Code::RemoteError, std::string(failed.message()));
  }
  *pending = true;
  return socket;
}

}  // namespace gyre::trust
