#include "lib/rendezvous/rendezvous_address.h"

#include "lib/base/errno_text.h"
#include "lib/base/log.h"
#include "lib/rendezvous/host_port.h"
#include "lib/trust/derive.h"
#include "lib/trust/interfaces.h"

#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gyre::rendezvous {
namespace {

constexpr int listen_backlog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr std::int64_t grace_ns = 2 * ns_per_s;
constexpr std::int64_t max_connect_ns = 5 * ns_per_s;  // then the next address, then again

struct AddressListTraits {
  using Handle = addrinfo*;
  static Handle none() { return nullptr; }
  static void close(Handle list) { ::freeaddrinfo(list); }
};

// A name server may be slow or silent: a thread of its own asks it, and is left to itself if the
// deadline passes first. (glibc's getaddrinfo_a does the same, but never answers after a fork.)
// While it sorts several addresses, glibc aborts the process if another thread closes its socket.
struct Lookup {
  HostPort where;
  int family = AF_UNSPEC;
  std::atomic<std::uint32_t> done = 0;
  int code = EAI_SYSTEM;  // these two are the thread's until done
  std::vector<trust::SocketAddress> found;

  void ask() {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* first = nullptr;
    code = ::getaddrinfo(where.host.c_str(), where.port.c_str(), &hints, &first);
    const Owned<AddressListTraits> list(code == 0 ? first : nullptr);
    for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
      trust::SocketAddress address;
      std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
      address.length = each->ai_addrlen;
      found.push_back(address);
    }
    done.store(1, std::memory_order_release);  // pairs with the acquire in look_up
    wake_futex(&done);
  }
};

// getaddrinfo's code; EAI_INPROGRESS at the deadline.
int look_up(const HostPort& where, int family, Wait& wait,
            std::vector<trust::SocketAddress>* found) {
  const auto lookup = std::make_shared<Lookup>();
  lookup->where = where;
  lookup->family = family;
  // The thread lets the application's signals to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto run = [](void* own) -> void* {
    const std::unique_ptr<std::shared_ptr<Lookup>> asked(
        static_cast<std::shared_ptr<Lookup>*>(own));
    (*asked)->ask();
    return nullptr;
  };
  auto own = std::make_unique<std::shared_ptr<Lookup>>(lookup);
  pthread_t thread{};
  const int started = pthread_create(&thread, nullptr, run, own.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started != 0) return EAI_AGAIN;
  (void)own.release();  // the thread's
  pthread_detach(thread);

  const auto arm = [&](WaitSet& set) {
    set.add_futex(&lookup->done, 0);
    return true;
  };
  while (lookup->done.load(std::memory_order_acquire) == 0)
    if (wait.pause(arm, [] {}) == Wait::Outcome::deadline) return EAI_INPROGRESS;
  *found = lookup->found;
  return lookup->code;
}

int wanted_family(const Settings& settings) {
  if (settings.socket_family == "AF_INET") return AF_INET;
  return settings.socket_family == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
}

FileDescriptor make_socket(int family) {
  FileDescriptor made(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int one = 1;
  if (made.has_value() && family != AF_UNIX) {
    // The port of a job that just ended is free again; a listener still holds it against us.
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  return made;
}

// errno of what failed, 0 for success.
int try_to_listen(const trust::SocketAddress& address, FileDescriptor* listener) {
  FileDescriptor made = make_socket(address.family());
  if (!made.has_value() || ::bind(made.get(), address.get(), address.length) != 0 ||
      ::listen(made.get(), listen_backlog) != 0)
    return errno;
  *listener = std::move(made);
  return 0;
}

std::string own_addresses() {
  const auto interfaces = trust::list_interfaces();
  std::string text;
  if (!interfaces.ok()) return "unknown";
  for (const trust::Interface& each : *interfaces) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name,
                        trust::host_of(trust::format_address(each.address)));
  }
  return text.empty() ? "none" : text;
}

std::string holder_of(const RendezvousAddress& point) {
  const FileDescriptor probe = make_socket(AF_UNIX);
  ucred peer{};
  socklen_t bytes = sizeof peer;
  const trust::SocketAddress& address = point.addresses.front();
  if (::connect(probe.get(), address.get(), address.length) != 0 ||
      ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return "another process";
  if (peer.uid != geteuid())
    return fmt::format("process {} of another user (uid {})", peer.pid, peer.uid);
  return peer.pid == getpid() ? "an earlier meeting of this process"
                              : fmt::format("process {} of this user", peer.pid);
}

Status cannot_open(const RendezvousAddress& point, int error) {
  if (error == EADDRINUSE && !point.network)
    return invalid_usage(fmt::format(
        "rank 0 cannot open the {}: {} holds it. If two jobs run at once, give each its own "
        "GYRE_JOB_ID",
        point.text, holder_of(point)));
  if (error == EADDRINUSE)
    return invalid_usage(
        fmt::format("rank 0 cannot listen at {}: another program or job does. Choose another port",
                    point.text));
  if (error == EADDRNOTAVAIL)
    return invalid_usage(
        fmt::format("{} is not an address of this host, where rank 0 runs. Its addresses: {}",
                    point.text, own_addresses()));
  return Status::from_errno(fmt::format("listening at {}", point.text), error);
}

// Linux lets a client whose own port is the one it asks for connect to itself.
bool connected_to_itself(int socket) {
  trust::SocketAddress own, peer;
  own.length = peer.length = sizeof own.storage;
  return ::getsockname(socket, own.get(), &own.length) == 0 &&
         ::getpeername(socket, peer.get(), &peer.length) == 0 && own.length == peer.length &&
         std::memcmp(&own.storage, &peer.storage, own.length) == 0;
}

// errno of what failed, 0 for success.
int try_to_connect(const trust::SocketAddress& address, Wait& wait, FileDescriptor* socket) {
  FileDescriptor made = make_socket(address.family());
  if (!made.has_value()) return errno;
  if (::connect(made.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return errno;
    const std::int64_t end_ns = SystemClock::read() + max_connect_ns;
    pollfd ready{made.get(), POLLOUT, 0};
    while (::poll(&ready, 1, 0) == 0)
      if (!rest(wait, made.get(), POLLOUT) || SystemClock::read() >= end_ns) return ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
    if (error != 0) return error;
  }
  if (address.family() != AF_UNIX && connected_to_itself(made.get())) return ECONNREFUSED;
  *socket = std::move(made);
  return 0;
}

bool is_loopback(const trust::SocketAddress& address) {
  if (address.family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return address.family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

// Our own shortage, which waiting for rank 0 does not cure.
bool is_shortage(int error) { return error == EMFILE || error == ENFILE; }

// This host has no such address, and may have the next one of the name. (EAFNOSUPPORT: the
// kernel lacks the family, as where IPv6 is off.)
bool is_absent_here(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

Result<std::shared_ptr<const NetworkProof>> prove_with(const trust::Secret& secret) {
  auto key = std::make_shared<trust::SessionKey>();
  std::array<std::uint8_t, 16> name{};
  GYRE_TRY(trust::derive(secret, "meeting identity", name));
  GYRE_TRY(trust::derive(secret, "meeting psk", key->psk));
  key->identity = std::string(rendezvous_identity_prefix) + trust::hexadecimal(name);
  GYRE_ASSIGN(auto tls, trust::Tls::create());
  return std::shared_ptr<const NetworkProof>(new NetworkProof{std::move(key), std::move(tls)});
}

// Debian gives a host's own name an address that no other host reaches (127.0.1.1 in /etc/hosts).
void warn_of_loopback(const RendezvousAddress& point, const trust::SocketAddress& address) {
  if (!point.was_looked_up || !is_loopback(address)) return;
  log_warn(
      "{}: on this host the name stands for {}, so ranks on other hosts cannot reach rank 0; give "
      "an address instead (ip -brief address), or mend /etc/hosts",
      point.text, trust::format_address(address));
}

}  // namespace

bool rest(Wait& wait, int descriptor, short events) {
  const auto arm = [&](WaitSet& set) {
    if (descriptor >= 0) set.add_descriptor(descriptor, events);
    return true;
  };
  return wait.pause(arm, [] {}) == Wait::Outcome::again;
}

Result<RendezvousAddress> local_rendezvous(std::string_view text) {
  const std::string key = fmt::format("{}:{}", geteuid(), text);
  std::array<std::uint8_t, 24> hash{};
  GYRE_TRY(trust::derive({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()},
                         "meeting point", hash));
  const std::string name = "gyre-" + trust::hexadecimal(hash);
  GYRE_ASSIGN(const trust::SocketAddress address, trust::abstract_address(name));
  return RendezvousAddress{{address}, fmt::format("abstract socket @{}", name), nullptr};
}

Result<RendezvousAddress> network_rendezvous(const Settings& settings, const trust::Secret& secret,
                                             Wait& wait) {
  GYRE_ASSIGN(const HostPort where, split_host_port(settings.rendezvous_address));
  RendezvousAddress point;
  point.text = fmt::format("GYRE_RENDEZVOUS_ADDRESS={}", settings.rendezvous_address);
  GYRE_ASSIGN(point.network, prove_with(secret));
  // What needs no name server asks none.
  if (const auto numeric = trust::parse_address(settings.rendezvous_address); numeric.ok()) {
    point.addresses = {*numeric};
    return point;
  }
  bool said = false;
  while (true) {
    const int code = look_up(where, wanted_family(settings), wait, &point.addresses);
    point.was_looked_up = where.host != "localhost";
    if (code == 0 && !point.addresses.empty()) return point;
    const std::string why = code == EAI_INPROGRESS ? "no answer" : gai_strerror(code);
    // Names of machines that are just starting may come to be known a little later.
    if (!std::exchange(said, true) && code != EAI_INPROGRESS)
      log_warn("{}: \"{}\" does not resolve ({}); trying again", point.text, where.host, why);
    if (!rest(wait))
      return Status(Code::Timeout,
                    fmt::format("{}: \"{}\" did not resolve to an address of family {} within {} "
                                "s: {}",
                                point.text, where.host, settings.socket_family,
                                settings.init_timeout_s, why));
  }
}

Result<FileDescriptor> listen_at_address(const RendezvousAddress& point, Wait& wait) {
  const std::int64_t end_ns = SystemClock::read() + grace_ns;
  FileDescriptor listener;
  while (true) {
    int error = 0;
    // The others take the first address that answers: rank 0 may not go round one that is in use.
    for (const trust::SocketAddress& address : point.addresses) {
      const int failed = try_to_listen(address, &listener);
      if (failed == 0) {
        warn_of_loopback(point, address);
        return listener;
      }
      if (error == 0 || failed != EAFNOSUPPORT) error = failed;
      if (!is_absent_here(failed)) break;
    }
    if (error != EADDRINUSE || SystemClock::read() >= end_ns || !rest(wait))
      return cannot_open(point, error);
  }
}

Result<FileDescriptor> connect_to_address(const RendezvousAddress& point, Wait& wait,
                                          std::string* reason) {
  FileDescriptor socket;
  bool has_family = false;
  for (const trust::SocketAddress& address : point.addresses) {
    const int error = try_to_connect(address, wait, &socket);
    if (error == EAFNOSUPPORT) continue;
    has_family = true;
    if (error == 0 && !point.network)
      GYRE_TRY(check_same_user(socket.get()).while_doing(point.text));
    if (error == 0) return socket;
    if (is_shortage(error))
      return Status::from_errno(fmt::format("connecting to {}", point.text), error);
    *reason = errno_name(error);
  }
  if (!has_family)
    return Status::from_errno(fmt::format("connecting to {}", point.text), EAFNOSUPPORT);
  return FileDescriptor();
}

Status check_same_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return Status::from_errno("asking whose process is at the other end", errno);
  if (peer.uid == geteuid()) return Status();
  return Status(Code::RemoteError,
                fmt::format("the process at the other end (pid {}) belongs to another user (uid "
                            "{}, we are {}); nothing was sent to it",
                            peer.pid, peer.uid, geteuid()));
}

}  // namespace gyre::rendezvous
