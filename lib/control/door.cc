#include "lib/control/door.h"

#include "lib/base/clock.h"
#include "lib/base/shortage.h"
#include "lib/control/first_words.h"
#include "lib/trust/address.h"
#include "lib/trust/derive.h"
#include "lib/trust/interfaces.h"
#include "lib/trust/session_key.h"

#include <fmt/format.h>

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
    return Status::from_errno("getrandom for a door name", errno);
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
Result<trust::Interface> choose_for(Audience audience, const Settings& settings) {
  GYRE_ASSIGN(auto interfaces, trust::list_interfaces());
  if (audience == Audience::this_host && settings.socket_interface.empty())
    std::erase_if(interfaces, [](const trust::Interface& one) { return !one.loopback; });
  return trust::choose_interface(interfaces, settings.socket_interface, settings.socket_family);
}

}  // namespace

Status Door::open(const Settings& settings) {
  static_assert(sizeof(Stranger) + sizeof(void*) * 2 <= 256, "what a stranger may cost");
  deaf_most_ns_ = settings.liveness_timeout_s * ns_per_s;
  if (has_wish(settings)) GYRE_TRY(choose_for(Audience::any_host, settings).status());
  GYRE_ASSIGN(name_, random_name());
  GYRE_ASSIGN(const auto local, trust::abstract_address(name_));
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(local));
  listeners_.push_back({std::move(socket), std::nullopt, {}, {}});
  return {};
}

Result<std::string> Door::listen_for(Audience audience, const Settings& settings) {
  for (const Listener& listener : listeners_)
    if (listener.by_tcp == audience) return listener.address;
  const auto chosen = choose_for(audience, settings);
  if (!chosen.ok()) {
    // One host needs no network; but a wish that cannot be met is an error.
    if (has_wish(settings) || audience == Audience::this_host) return chosen.status();
    log_info(Subsystem::net, "no door for other hosts: {}", chosen.status().message());
    return std::string();
  }
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(chosen->address));
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (getsockname(socket.get(), bound.get(), &bound.length) != 0)
    return Status::from_errno("getsockname", errno);
  listeners_.push_back({std::move(socket), audience, trust::format_address(bound), {}});
  GYRE_TRY(watch_listener(listeners_.back()));
  log_info(Subsystem::net, "door at {} on {}, for {}", listeners_.back().address, chosen->name,
           audience == Audience::any_host ? "other hosts" : "processes of this host");
  return listeners_.back().address;
}

void Door::close_to_other_hosts() {
  const auto closed = std::erase_if(
      listeners_, [](const Listener& listener) { return listener.by_tcp == Audience::any_host; });
  if (closed != 0) log_info(Subsystem::net, "the door for other hosts is closed");
}

Status Door::serve(FindKey find_key, OnSession on_session) {
  find_key_ = std::move(find_key);
  on_session_ = std::move(on_session);
  for (Listener& listener : listeners_) GYRE_TRY(watch_listener(listener));
  return {};
}

Status Door::add_name(const std::string& name) {
  GYRE_ASSIGN(const auto address, trust::abstract_address(name));
  GYRE_ASSIGN(FileDescriptor socket, trust::listen_at(address));
  listeners_.push_back({std::move(socket), std::nullopt, {}, {}});
  return watch_listener(listeners_.back());
}

Status Door::watch_listener(Listener& listener) {
  GYRE_ASSIGN(listener.watch,
              thread_.watch(listener.socket.get(), EPOLLIN,
                            [this, &listener](std::uint32_t) { accept_some(listener); }));
  return {};
}

// Few at a time, so that those who are in are not kept waiting by those who knock.
void Door::accept_some(Listener& listener) {
  for (int i = 0; i < accepts_at_once; ++i) {
    FileDescriptor socket = trust::accept_at(listener.socket);
    if (!socket.has_value()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_shortage(errno) && !make_room("no descriptors are left")) pause();
      return;  // a connection that still waits wakes us again
    }
    if (!listener.by_tcp && !is_same_user(socket.get())) {
      warning_.write("the door turned away a process of another user");
      continue;
    }
    let_in(std::move(socket));
  }
}

// The oldest goes who has not named a key of ours; if there is none, the oldest. Its descriptor is
// free again once the event at hand is over.
bool Door::make_room(std::string_view why) {
  if (strangers_.empty()) return false;
  const Place silent =
      std::find_if(strangers_.begin(), strangers_.end(),
                   [](const Stranger& stranger) { return stranger.session == nullptr; });
  turn_away(silent != strangers_.end() ? silent : strangers_.begin(), why);
  return true;
}

void Door::pause() {
  warning_.write(
      "the door accepts nobody for now: no descriptors or memory are left; raise the "
      "limit (ulimit -n)");
  for (Listener& listener : listeners_) listener.watch.change(0);
  const std::int64_t now_ns = SystemClock::read();
  // Whoever waits at the door is seen as soon as the watch is back.
  if (now_ns > deaf_until_ns_ + deaf_ns) deaf_since_ns_ = now_ns;
  deaf_until_ns_ = now_ns + deaf_ns;
  thread_.due_at(deaf_until_ns_);
  is_deaf_ = true;
}

Status Door::check_deaf() {
  const std::int64_t lasted_ns = deaf_until_ns_ - deaf_since_ns_;
  if (!is_deaf_ || lasted_ns < deaf_most_ns_) return {};
  deaf_since_ns_ = deaf_until_ns_;
  return Status(Code::SystemError,
                fmt::format("no connection could be accepted for {:.1f} s: no descriptors or "
                            "memory are left; raise the limit (ulimit -n)",
                            static_cast<double>(lasted_ns) / ns_per_s));
}

void Door::let_in(FileDescriptor socket) {
  while (strangers_.size() >= strangers_most_)
    make_room("too many connections wait to prove themselves");
  const int descriptor = socket.get();
  Stranger newcomer;
  newcomer.socket = std::move(socket);
  newcomer.until_ns = SystemClock::read() + patience_ns;
  thread_.due_at(newcomer.until_ns);
  const Place stranger = strangers_.insert(strangers_.end(), std::move(newcomer));
  // Edges: what it sends stays in the kernel until there is enough to judge.
  auto watch = thread_.watch(descriptor, EPOLLIN | EPOLLRDHUP | EPOLLET,
                             [this, stranger](std::uint32_t) { on_event(stranger); });
  if (!watch.ok()) return turn_away(stranger, watch.status().message());
  stranger->watch = std::move(*watch);
  look(stranger);  // what it wants is often there already, and those who come next push it out less
}

void Door::on_event(Place stranger) {
  if (stranger->session != nullptr) return continue_handshake(stranger);
  look(stranger);
}

// Looks without taking.
void Door::look(Place stranger) {
  std::uint8_t bytes[first_words_most];
  const ssize_t got = ::recv(stranger->socket.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return see_off(stranger, "it said nothing");
  const FirstWords words =
      judge_first_words({bytes, static_cast<std::size_t>(got)}, trust::identity_prefix);
  switch (words.wish) {
    case FirstWords::Wish::unclear:
      return;
    case FirstWords::Wish::show_ticket:
      return take_ticket(stranger);
    case FirstWords::Wish::prove_key:
      return begin_handshake(stranger, words.identity);
    case FirstWords::Wish::other:
      return turn_away(stranger, words.fault);
  }
}

void Door::take_ticket(Place stranger) {
  trust::TicketHello hello;
  if (::recv(stranger->socket.get(), &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello)
    return turn_away(stranger, "its ticket could not be read");
  FileDescriptor socket = std::move(stranger->socket);
  let_go(stranger);
  switch (tickets_.redeem(hello.ticket, std::move(socket))) {
    case trust::TicketBook::Shown::good:
      return;
    case trust::TicketBook::Shown::withdrawn:
      return log_info(Subsystem::bootstrap,
                      "the door turned away a connection that came too late: nobody waits for it "
                      "any more");
    case trust::TicketBook::Shown::unknown:
      return warning_.write(
          "the door turned away a connection: its ticket is unknown or was used before");
  }
}

void Door::begin_handshake(Place stranger, const std::string& identity) {
  const Named named = identity.empty() ? Named() : find_key_(identity);
  stranger->key = named.key;
  if (named.key == nullptr && named.was_known)
    return see_off(stranger, "its communicator has ended here");
  if (named.key == nullptr) return turn_away(stranger, "it knows no communicator of this process");
  auto session = trust::SecureSession::start(tls_, std::move(stranger->socket),
                                             trust::SessionRole::server, stranger->key);
  if (!session.ok()) return turn_away(stranger, session.status().message());
  stranger->session = std::move(*session);
  continue_handshake(stranger);
}

void Door::continue_handshake(Place stranger) {
  trust::SecureSession& session = *stranger->session;
  const Status status = session.advance();
  if (!status.ok() && session.ended()) return see_off(stranger, status.message());
  if (!status.ok()) return turn_away(stranger, status.message());
  if (!session.established())
    return stranger->watch.change(session.wants_write() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  std::unique_ptr<trust::SecureSession> proved = std::move(stranger->session);
  let_go(stranger);
  on_session_(std::move(proved));
}

void Door::turn_away(Place stranger, std::string_view why) {
  warning_.write(
      fmt::format("the door turned away {}: {}", peer_text(stranger->descriptor()), why));
  let_go(stranger);
}

// A peer that ends, is late, or thought better of it: nothing to warn of.
void Door::see_off(Place stranger, std::string_view why) {
  log_info(Subsystem::bootstrap, "{} went away: {}", peer_text(stranger->descriptor()), why);
  let_go(stranger);
}

// The watch goes before what it watches.
void Door::let_go(Place stranger) {
  stranger->watch.reset();
  strangers_.erase(stranger);
}

std::int64_t Door::tick(std::int64_t now_ns) {
  while (!strangers_.empty() && strangers_.front().until_ns <= now_ns)
    turn_away(strangers_.begin(), "it did not prove itself within two seconds");
  const std::int64_t next = strangers_.empty() ? never_ns : strangers_.front().until_ns;
  if (!is_deaf_) return next;
  if (now_ns < deaf_until_ns_) return std::min(next, deaf_until_ns_);
  is_deaf_ = false;
  for (Listener& listener : listeners_) listener.watch.change(EPOLLIN);
  return next;
}

}  // namespace gyre::control
