#include "lib/control/control_listener.h"

#include "lib/base/clock.h"
#include "lib/base/shortage.h"
#include "lib/control/first_words.h"
#include "lib/trust/address.h"
#include "lib/trust/derive.h"
#include "lib/trust/session_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gyre::control {
namespace {

constexpr std::int64_t patience_ns = 2 * ns_per_s;
constexpr std::int64_t deaf_ns = 100 * ns_per_ms;
constexpr int accepts_at_once = 64;

Result<std::string> random_name() {
  std::uint8_t bytes[12];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return Status::from_errno("getrandom for a socket's name", errno);
  return "gyre-" + trust::hexadecimal(bytes);
}

bool is_same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

std::string peer_text(int socket) {
  trust::SocketAddress address;
  address.length = sizeof address.storage;
  if (getpeername(socket, address.get(), &address.length) != 0) return "a connection";
  return trust::format_address(address);
}

bool has_wish(const Settings& settings) {
  return !settings.socket_interface.empty() || settings.socket_family != "ANY";
}

// A wish holds for both; without one, processes of this host meet at its loopback interface.
Result<std::vector<trust::Interface>> choose_for(Audience audience, const Settings& settings) {
  GYRE_ASSIGN(const auto interfaces, trust::list_interfaces());
  std::string_view wanted = settings.socket_interface;
  if (audience == Audience::this_host && wanted.empty()) wanted = "=lo";
  const std::int64_t most = audience == Audience::any_host ? settings.tcp_sockets : 1;
  return trust::choose_interfaces(interfaces, wanted, settings.socket_family,
                                  static_cast<std::size_t>(most));
}

}  // namespace

Status ControlListener::open(const Settings& settings) {
  static_assert(sizeof(UnauthenticatedClient) + sizeof(void*) * 2 <= 256, "what a client may cost");
  max_deaf_ns_ = settings.liveness_timeout_s * ns_per_s;
  if (has_wish(settings)) GYRE_TRY(choose_for(Audience::any_host, settings).status());
  GYRE_ASSIGN(name_, random_name());
  GYRE_ASSIGN(const auto local, trust::abstract_address(name_));
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(local));
  sockets_.push_back({std::move(socket), std::nullopt, {}, {}});
  return {};
}

Result<std::vector<std::string>> ControlListener::listen_for(Audience audience,
                                                             const Settings& settings) {
  std::vector<std::string> addresses;
  const auto list_addresses = [&] {
    for (const ListeningSocket& listener : sockets_)
      if (listener.by_tcp == audience) addresses.push_back(listener.address);
  };
  list_addresses();
  if (!addresses.empty()) return addresses;
  const auto chosen = choose_for(audience, settings);
  if (!chosen.ok()) {
    // One host needs no network; but a wish that cannot be met is an error.
    if (has_wish(settings) || audience == Audience::this_host) return chosen.status();
    log_info(Subsystem::net, "no listener for other hosts: {}", chosen.status().message());
    return addresses;
  }
  for (const trust::Interface& interface : *chosen) {
    Status listening = listen_at(interface, audience);
    if (listening.ok()) continue;
    // All or none: who asks again would take fewer for all.
    close_for(audience);
    return listening;
  }
  list_addresses();
  return addresses;
}

Status ControlListener::listen_at(const trust::Interface& interface, Audience audience) {
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(interface.address));
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (getsockname(socket.get(), bound.get(), &bound.length) != 0)
    return Status::from_errno("getsockname", errno);
  GYRE_TRY(keep({std::move(socket), audience, trust::format_address(bound), {}}));
  log_info(Subsystem::net, "listening at {} on {}, for {}", sockets_.back().address, interface.name,
           audience == Audience::any_host ? "other hosts" : "processes of this host");
  return {};
}

void ControlListener::close_to_other_hosts() {
  if (close_for(Audience::any_host) != 0)
    log_info(Subsystem::net, "the listener for other hosts is closed");
}

std::size_t ControlListener::close_for(Audience audience) {
  return std::erase_if(sockets_, [audience](const ListeningSocket& listener) {
    return listener.by_tcp == audience;
  });
}

Status ControlListener::serve(FindKey find_key, OnSession on_session) {
  find_key_ = std::move(find_key);
  on_session_ = std::move(on_session);
  for (ListeningSocket& listener : sockets_) GYRE_TRY(watch_listener(listener));
  return {};
}

Status ControlListener::add_name(const std::string& name) {
  for (const ListeningSocket& listener : sockets_)
    if (listener.address == name) return {};
  GYRE_ASSIGN(const auto address, trust::abstract_address(name));
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(address));
  return keep({std::move(socket), std::nullopt, name, {}});
}

void ControlListener::remove_name(const std::string& name) {
  std::erase_if(sockets_, [&](const ListeningSocket& listener) {
    return !listener.by_tcp && listener.address == name;
  });
}

// Nobody accepts at one that is not watched.
Status ControlListener::keep(ListeningSocket socket) {
  sockets_.push_back(std::move(socket));
  Status watched = watch_listener(sockets_.back());
  if (!watched.ok()) sockets_.pop_back();
  return watched;
}

Status ControlListener::watch_listener(ListeningSocket& listener) {
  GYRE_ASSIGN(listener.watch,
              thread_.watch(listener.socket.get(), EPOLLIN,
                            [this, &listener](std::uint32_t) { accept_some(listener); }));
  return {};
}

// Few at a time, so that those who are in are not kept waiting by those who connect.
void ControlListener::accept_some(ListeningSocket& listener) {
  for (int i = 0; i < accepts_at_once; ++i) {
    FileDescriptor socket = trust::accept_at(listener.socket);
    if (!socket.has_value()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_shortage(errno) && !make_room("no descriptors are left")) pause();
      return;  // a connection that still waits wakes us again
    }
    if (!listener.by_tcp && !is_same_user(socket.get())) {
      warning_.write("the listener turned away a process of another user");
      continue;
    }
    let_in(std::move(socket));
  }
}

// The oldest goes who has not named a key of ours; if there is none, the oldest. Its descriptor is
// free again once the event at hand is over.
bool ControlListener::make_room(std::string_view why) {
  if (clients_.empty()) return false;
  const ClientIterator silent =
      std::find_if(clients_.begin(), clients_.end(),
                   [](const UnauthenticatedClient& client) { return client.session == nullptr; });
  turn_away(silent != clients_.end() ? silent : clients_.begin(), why);
  return true;
}

void ControlListener::pause() {
  warning_.write(
      "the listener accepts no connections for now: no descriptors or memory are left; raise the "
      "limit (ulimit -n)");
  for (ListeningSocket& listener : sockets_) listener.watch.change(0);
  const std::int64_t now_ns = SystemClock::read();
  // Whoever waits at the listener is seen as soon as the watch is back.
  if (now_ns > deaf_until_ns_ + deaf_ns) deaf_since_ns_ = now_ns;
  deaf_until_ns_ = now_ns + deaf_ns;
  thread_.due_at(deaf_until_ns_);
  is_deaf_ = true;
}

Status ControlListener::check_deaf() {
  const std::int64_t lasted_ns = deaf_until_ns_ - deaf_since_ns_;
  if (!is_deaf_ || lasted_ns < max_deaf_ns_) return {};
  deaf_since_ns_ = deaf_until_ns_;
  return Status(Code::SystemError,
                fmt::format("no connection could be accepted for {:.1f} s: no descriptors or "
                            "memory are left; raise the limit (ulimit -n)",
                            static_cast<double>(lasted_ns) / ns_per_s));
}

void ControlListener::let_in(FileDescriptor socket) {
  while (clients_.size() >= max_clients_)
    make_room("too many connections wait to prove themselves");
  const int descriptor = socket.get();
  UnauthenticatedClient newcomer;
  newcomer.socket = std::move(socket);
  newcomer.until_ns = SystemClock::read() + patience_ns;
  thread_.due_at(newcomer.until_ns);
  const ClientIterator client = clients_.insert(clients_.end(), std::move(newcomer));
  // Edges: what it sends stays in the kernel until there is enough to judge.
  auto watch = thread_.watch(descriptor, EPOLLIN | EPOLLRDHUP | EPOLLET,
                             [this, client](std::uint32_t) { on_event(client); });
  if (!watch.ok()) return turn_away(client, watch.status().message());
  client->watch = std::move(*watch);
  look(client);  // what it wants is often there already, and those who come next push it out less
}

void ControlListener::on_event(ClientIterator client) {
  if (client->session != nullptr) return continue_handshake(client);
  look(client);
}

// Looks without taking.
void ControlListener::look(ClientIterator client) {
  std::uint8_t bytes[max_first_words];
  const ssize_t got = ::recv(client->socket.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return see_off(client, "it said nothing");
  const FirstWords words =
      judge_first_words({bytes, static_cast<std::size_t>(got)}, trust::identity_prefix);
  switch (words.intent) {
    case FirstWords::Intent::unclear:
      return;
    case FirstWords::Intent::show_ticket:
      return take_ticket(client);
    case FirstWords::Intent::prove_key:
      return begin_handshake(client, words.identity);
    case FirstWords::Intent::other:
      return turn_away(client, words.fault);
  }
}

void ControlListener::take_ticket(ClientIterator client) {
  trust::TicketHello hello;
  if (::recv(client->socket.get(), &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello)
    return turn_away(client, "its ticket could not be read");
  FileDescriptor socket = std::move(client->socket);
  let_go(client);
  switch (tickets_.redeem(hello.ticket, std::move(socket))) {
    case trust::TicketBook::Redemption::good:
      return;
    case trust::TicketBook::Redemption::withdrawn:
      return log_info(
          Subsystem::bootstrap,
          "the listener turned away a connection that came too late: nobody waits for it "
          "any more");
    case trust::TicketBook::Redemption::unknown:
      return warning_.write(
          "the listener turned away a connection: its ticket is unknown or was used before");
  }
}

void ControlListener::begin_handshake(ClientIterator client, const std::string& identity) {
  const KeyLookup named = identity.empty() ? KeyLookup() : find_key_(identity);
  client->key = named.key;
  if (named.key == nullptr && named.was_known)
    return see_off(client, "its communicator has ended here");
  if (named.key == nullptr) return turn_away(client, "it knows no communicator of this process");
  auto session = trust::SecureSession::start(tls_, std::move(client->socket),
                                             trust::SessionRole::server, client->key);
  if (!session.ok()) return turn_away(client, session.status().message());
  client->session = std::move(*session);
  continue_handshake(client);
}

void ControlListener::continue_handshake(ClientIterator client) {
  trust::SecureSession& session = *client->session;
  const Status status = session.advance();
  if (!status.ok() && session.ended()) return see_off(client, status.message());
  if (!status.ok()) return turn_away(client, status.message());
  if (!session.established())
    return client->watch.change(session.wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  std::unique_ptr<trust::SecureSession> proved = std::move(client->session);
  let_go(client);
  on_session_(std::move(proved));
}

void ControlListener::turn_away(ClientIterator client, std::string_view why) {
  warning_.write(
      fmt::format("the listener turned away {}: {}", peer_text(client->descriptor()), why));
  let_go(client);
}

// A peer that ends, is late, or thought better of it: nothing to warn of.
void ControlListener::see_off(ClientIterator client, std::string_view why) {
  log_info(Subsystem::bootstrap, "{} went away: {}", peer_text(client->descriptor()), why);
  let_go(client);
}

// The watch goes before what it watches.
void ControlListener::let_go(ClientIterator client) {
  client->watch.reset();
  clients_.erase(client);
}

std::int64_t ControlListener::tick(std::int64_t now_ns) {
  while (!clients_.empty() && clients_.front().until_ns <= now_ns)
    turn_away(clients_.begin(), "it did not prove itself within two seconds");
  const std::int64_t next = clients_.empty() ? never_ns : clients_.front().until_ns;
  if (!is_deaf_) return next;
  if (now_ns < deaf_until_ns_) return std::min(next, deaf_until_ns_);
  is_deaf_ = false;
  for (ListeningSocket& listener : sockets_) listener.watch.change(EPOLLIN);
  return next;
}

}  // namespace gyre::control
