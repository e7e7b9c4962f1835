#include "transports/tcp/socket.h"

#include "lib/base/clock.h"
#include "lib/base/errno_text.h"
#include "lib/trust/address.h"

#include <fmt/core.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gyre::transport {
std::string peer_address(const FileDescriptor& socket) {
  trust::SocketAddress address;
  address.length = sizeof address.storage;
  if (getpeername(socket.get(), address.get(), &address.length) != 0) return "address unknown";
  return trust::format_address(address);
}

std::string own_address(int socket) {
  trust::SocketAddress address;
  address.length = sizeof address.storage;
  if (getsockname(socket, address.get(), &address.length) != 0) return "an unknown address";
  return trust::format_address(address);
}

bool leads_to_this_host(std::string_view address, const std::vector<std::string>& own) {
  if (address.starts_with("127.") || address.starts_with("[::1]:")) return true;
  return std::ranges::any_of(
      own, [&](const std::string& one) { return trust::host_of(one) == trust::host_of(address); });
}

Status set_sending(const FileDescriptor& socket) {
  const int on = 1;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0) return {};
  return Status::from_errno("setsockopt(TCP_NODELAY)", errno);
}

Status keep_backlog_short(const FileDescriptor& socket) {
  constexpr int unsent_bytes = 64 << 10;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes,
                 sizeof unsent_bytes) == 0)
    return {};
  return Status::from_errno("setsockopt(TCP_NOTSENT_LOWAT)", errno);
}

std::optional<Deliveries> look_at_deliveries(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  const std::uint64_t busy_us = info.tcpi_busy_time - info.tcpi_rwnd_limited;
  return Deliveries{info.tcpi_notsent_bytes + std::uint64_t{info.tcpi_unacked} * info.tcpi_snd_mss,
                    info.tcpi_bytes_acked, static_cast<std::int64_t>(busy_us) * 1000};
}

Status judge_path(int socket, PathWatch& watch, std::int64_t now_ns, std::int64_t limit_ns) {
  const auto silent_ns = watch.find_cut(socket, now_ns, limit_ns);
  if (!silent_ns) return {};
  return Status(Code::RemoteError,
                fmt::format("no answer from its host for {:.1f} s: the network from {} is cut, or "
                            "the host is down",
                            static_cast<double>(*silent_ns) / ns_per_s, own_address(socket)));
}

// Within a host nothing is lost and no link is shared, but BBR (the default of some) paces as if it
// were, and CUBIC leaves slow start early. Measured over loopback, 1 MiB there and back on one
// socket, one way: 480 us with BBR, 230 with CUBIC, 92 with Reno. To be set before connecting, else
// BBR's pacing stays on.
void prefer_reno(const FileDescriptor& socket) {
  constexpr std::string_view reno = "reno";
  setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, reno.data(), reno.size());
}

void prefer_system_default(const FileDescriptor& socket) {
  const FileDescriptor fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char name[32] = {};
  socklen_t length = sizeof name;
  if (getsockopt(fresh.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0)
    setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name,
               static_cast<socklen_t>(strnlen(name, sizeof name)));
}

Status show_ticket(const FileDescriptor& socket, const trust::Ticket& ticket) {
  trust::TicketHello hello;
  hello.ticket = ticket;
  // A socket that has sent nothing yet takes the 40 bytes at once.
  if (send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello)
    return {};
  return Status(Code::RemoteError, "send of a ticket: " + errno_text(errno));
}

Result<TicketProgress> take_ticket(const FileDescriptor& socket, const trust::Ticket& ticket,
                                   ShownTicket& shown) {
  trust::TicketHello expected;
  expected.ticket = ticket;
  auto* const place = reinterpret_cast<std::byte*>(&shown.hello) + shown.bytes;
  const ssize_t got = recv(socket.get(), place, sizeof expected - shown.bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return TicketProgress::not_yet;
  if (got <= 0) {
    shown.end = got == 0 ? "closed without an answer" : errno_text(errno);
    return TicketProgress::ended;
  }
  shown.bytes += static_cast<std::size_t>(got);
  if (shown.bytes < sizeof expected) return TicketProgress::not_yet;
  if (CRYPTO_memcmp(&shown.hello, &expected, sizeof expected) == 0) return TicketProgress::whole;
  return Status(Code::RemoteError, "the peer shows a ticket that is not this link's");
}

}  // namespace gyre::transport
