#include "lib/bootstrap/door.h"

#include "lib/base/clock.h"
#include "lib/trust/address.h"
#include "lib/trust/session_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gyre::bootstrap {
namespace {

constexpr std::int64_t patience_ns = 2 * ns_per_s;
// Enough for every rank of a large host to knock at once; more are strangers' doing.
constexpr std::size_t strangers_most = 512;
constexpr std::size_t hello_most = 2048;
constexpr unsigned char tls_handshake = 22;  // RFC 8446 5.1, ContentType
constexpr std::size_t tls_record_head = 5;

Result<std::string> random_name() {
  std::uint8_t bytes[12];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return Status::from_errno("getrandom", errno);
  return "gyre-" + trust::hexadecimal(bytes);
}

}  // namespace

Door::~Door() {
  for (Stranger& stranger : strangers_) thread_.unwatch(stranger.watch);
  for (Listener& listener : listeners_) thread_.unwatch(listener.watch);
}

Status Door::open(const Settings& settings) {
  GYRE_ASSIGN(name_, random_name());
  GYRE_ASSIGN(const auto local, trust::abstract_address(name_));
  GYRE_ASSIGN(FileDescriptor local_socket, trust::listen_at(local));
  listeners_.push_back({std::move(local_socket), true});
  GYRE_ASSIGN(const auto interfaces, trust::list_interfaces());
  const auto chosen =
      trust::choose_interface(interfaces, settings.socket_interface, settings.socket_family);
  if (!chosen.ok()) {
    // One host needs no network; but a wish that cannot be met is an error.
    if (!settings.socket_interface.empty() || settings.socket_family != "ANY")
      return chosen.status();
    log_info("no TCP door: {}", chosen.status().message());
    return {};
  }
  GYRE_ASSIGN(FileDescriptor tcp_socket, trust::listen_at(chosen->address));
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (getsockname(tcp_socket.get(), bound.get(), &bound.length) != 0)
    return Status::from_errno("getsockname", errno);
  addresses_.push_back(trust::format_address(bound));
  listeners_.push_back({std::move(tcp_socket), false});
  log_info("door at {} of {}", addresses_[0], chosen->name);
  return {};
}

Status Door::add_name(const std::string& name) {
  GYRE_ASSIGN(const auto address, trust::abstract_address(name));
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(address));
  listeners_.push_back({std::move(socket), true});
  watch_listener(listeners_.back());
  return {};
}

void Door::serve(Knows knows, OnGuest on_guest) {
  knows_ = std::move(knows);
  on_guest_ = std::move(on_guest);
  for (Listener& listener : listeners_) watch_listener(listener);
}

void Door::watch_listener(Listener& listener) {
  auto watch = thread_.watch(listener.socket.get(), EPOLLIN,
                             [this, &listener](std::uint32_t) { accept_all(listener); });
  if (watch.ok())
    listener.watch = *watch;
  else
    log_warn("the door does not open: {}", watch.status().message());
}

void Door::accept_all(Listener& listener) {
  // Few at a time, so that those who are in are not kept waiting by those who knock.
  for (int i = 0; i < 64; ++i) {
    FileDescriptor socket(
        accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.has_value()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory: the oldest stranger goes, or the door stays shut for a
      // moment.
      warning_.write(fmt::format("the door cannot accept: {}", strerror(errno)));
      if (!strangers_.empty()) {
        turn_away(strangers_.begin(), "descriptors ran out");
        continue;
      }
      for (Listener& one : listeners_) thread_.change(one.watch, 0);
      deaf_until_ns_ = SystemClock::read() + 100 * ns_per_ms;
      return;
    }
    int pid = -1;
    if (listener.local && !is_same_user(socket.get(), pid)) {
      warning_.write("a process of another user knocked at the door and was turned away");
      continue;
    }
    if (strangers_.size() >= strangers_most) turn_away(strangers_.begin(), "too many strangers");
    strangers_.push_back({std::move(socket), 0, SystemClock::read() + patience_ns, pid});
    const Place stranger = std::prev(strangers_.end());
    auto watch = thread_.watch(stranger->socket.get(), EPOLLIN | EPOLLRDHUP | EPOLLET,
                               [this, stranger](std::uint32_t) { look(stranger); });
    if (watch.ok())
      stranger->watch = *watch;
    else
      strangers_.erase(stranger);
  }
}

bool Door::is_same_user(int socket, int& pid) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  pid = peer.pid;
  return peer.uid == getuid();
}

// Looks without taking: what a stranger sends stays in the kernel until it is known.
void Door::look(Place stranger) {
  std::uint8_t bytes[hello_most];
  const int socket = stranger->socket.get();
  const ssize_t got = ::recv(socket, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return turn_away(stranger, "it went away without a word");
  const auto length = static_cast<std::size_t>(got);

  const trust::TicketHello expected;
  const std::size_t same = std::min(length, expected.magic.size());
  if (std::memcmp(bytes, expected.magic.data(), same) == 0) {
    trust::TicketHello hello;
    if (length < sizeof hello) return;
    if (::recv(socket, &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello)
      return turn_away(stranger, "its ticket cannot be read");
    FileDescriptor taken = std::move(stranger->socket);
    thread_.unwatch(stranger->watch);
    strangers_.erase(stranger);
    if (!tickets_.redeem(hello.ticket, std::move(taken)))
      warning_.write("a connection showed a ticket that is unknown or was used before");
    return;
  }
  if (bytes[0] != tls_handshake) return turn_away(stranger, "it spoke another protocol");
  if (length < tls_record_head) return;
  const std::size_t record = tls_record_head + (static_cast<std::size_t>(bytes[3]) << 8 | bytes[4]);
  if (record > hello_most) return turn_away(stranger, "its hello is too long");
  if (length < record) return;
  if (!knows_({reinterpret_cast<const char*>(bytes), record}))
    return turn_away(stranger, "it does not know the secret of any communicator here");
  Guest guest{std::move(stranger->socket), stranger->pid};
  thread_.unwatch(stranger->watch);
  strangers_.erase(stranger);
  on_guest_(std::move(guest));
}

void Door::turn_away(Place stranger, std::string_view why) {
  warning_.write(fmt::format("a stranger at the door was turned away: {}", why));
  thread_.unwatch(stranger->watch);
  strangers_.erase(stranger);
}

void Door::tick(std::int64_t now_ns) {
  while (!strangers_.empty() && strangers_.front().until_ns <= now_ns)
    turn_away(strangers_.begin(), "it said too little for two seconds");
  if (deaf_until_ns_ == 0 || now_ns < deaf_until_ns_) return;
  deaf_until_ns_ = 0;
  for (Listener& listener : listeners_) thread_.change(listener.watch, EPOLLIN);
}

}  // namespace gyre::bootstrap
