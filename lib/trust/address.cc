#include "lib/trust/address.h"

#include "lib/base/settings.h"
#include "lib/base/shortage.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

namespace gyre::trust {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int listen_backlog = 4096;

struct InterfaceListTraits {
  using Handle = ifaddrs*;
  static Handle none() { return nullptr; }
  static void close(Handle list) { freeifaddrs(list); }
};

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

bool is_link_local(const SocketAddress& address) {
  if (address.family() != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address.storage, sizeof v6);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

bool is_bridge(std::string_view name) {
  return name.starts_with("docker") || name.starts_with("virbr") || name.starts_with("br-");
}

bool family_matches(const Interface& interface, std::string_view family) {
  if (family == "AF_INET") return interface.address.family() == AF_INET;
  if (family == "AF_INET6") return interface.address.family() == AF_INET6;
  return true;
}

std::string names_of(std::span<const Interface> interfaces) {
  std::string names;
  for (const Interface& interface : interfaces)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", interface.name,
                         format_address(interface.address));
  return names.empty() ? "none" : names;
}

// Without it whoever says two things in a row waits up to 40 ms for the other side's delayed
// acknowledgement of the first.
Status send_at_once(const FileDescriptor& socket) {
  const int one = 1;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0) return {};
  return Status::from_errno("setsockopt TCP_NODELAY", errno);
}

}  // namespace

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

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return Status::from_errno("getifaddrs", errno);
  const Owned<InterfaceListTraits> list(raw);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface interface;
    interface.name = entry->ifa_name;
    interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    interface.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&interface.address.storage, entry->ifa_addr, interface.address.length);
    if (!is_link_local(interface.address)) interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

bool interface_matches(std::string_view wanted, std::string_view name) {
  const bool exclude = wanted.starts_with('^');
  if (exclude) wanted.remove_prefix(1);
  const bool exact = wanted.starts_with('=');
  if (exact) wanted.remove_prefix(1);
  bool listed = false;
  while (!wanted.empty()) {
    const std::size_t comma = std::min(wanted.find(','), wanted.size());
    const std::string_view word = wanted.substr(0, comma);
    wanted.remove_prefix(std::min(comma + 1, wanted.size()));
    if (!word.empty()) listed |= exact ? name == word : name.starts_with(word);
  }
  return listed != exclude;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view wanted,
                                   std::string_view family) {
  const auto first = [&](auto&& fits) -> const Interface* {
    for (const Interface& interface : interfaces)
      if (family_matches(interface, family) && fits(interface)) return &interface;
    return nullptr;
  };
  const auto allowed = [&](const Interface& i) {
    return wanted.empty() || interface_matches(wanted, i.name);
  };
  const Interface* chosen = nullptr;
  // A name that was asked for is taken in the machine's order, loopback or not.
  if (!wanted.empty() && wanted.front() != '^') chosen = first(allowed);
  if (!chosen)
    chosen =
        first([&](const Interface& i) { return allowed(i) && !i.loopback && !is_bridge(i.name); });
  if (!chosen) chosen = first([&](const Interface& i) { return allowed(i) && !i.loopback; });
  if (!chosen) chosen = first(allowed);
  if (chosen) return *chosen;
  return invalid_argument(
      fmt::format("no interface fits GYRE_SOCKET_IFNAME='{}' and GYRE_SOCKET_FAMILY={}; there are: "
                  "{}",
                  wanted, family, names_of(interfaces)));
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
