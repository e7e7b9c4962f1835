#include "tests/support/transports/test_listener.h"

#include "lib/base/log.h"
#include "lib/trust/address.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

namespace gyre::tests {
namespace {

[[noreturn]] void give_up(const char* what) {
  log_warn("test support: {}: {}", what, strerror(errno));
  std::abort();
}

std::string random_name() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) give_up("getrandom");
  return fmt::format("gyre-test-{}-{:016x}", getpid(), number);
}

}  // namespace

FileDescriptor listen_local(const std::string& name) {
  const auto address = trust::abstract_address(name);
  if (!address.ok()) give_up("abstract_address");
  auto socket = trust::listen_at(*address);
  if (!socket.ok()) give_up("listening at an abstract name");
  return std::move(*socket);
}

FileDescriptor listen_loopback(int family, std::string& address) {
  const auto wanted = trust::parse_address(family == AF_INET ? "127.0.0.1:0" : "[::1]:0");
  if (!wanted.ok()) give_up("parse_address");
  auto socket = trust::listen_at(*wanted);
  if (!socket.ok()) return {};
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (getsockname(socket->get(), bound.get(), &bound.length) != 0) give_up("getsockname");
  address = trust::format_address(bound);
  return std::move(*socket);
}

bool has_family(int family) {
  std::string address;
  return listen_loopback(family, address).has_value();
}

std::optional<trust::TicketHello> read_hello(const FileDescriptor& socket) {
  trust::TicketHello hello;
  auto* bytes = reinterpret_cast<std::byte*>(&hello);
  std::size_t got = 0;
  while (got < sizeof hello) {
    pollfd ready{socket.get(), POLLIN, 0};
    if (poll(&ready, 1, 2000) <= 0) return std::nullopt;
    const ssize_t part = recv(socket.get(), bytes + got, sizeof hello - got, MSG_DONTWAIT);
    if (part <= 0) return std::nullopt;
    got += static_cast<std::size_t>(part);
  }
  if (hello.magic != trust::TicketHello().magic) return std::nullopt;
  return hello;
}

TestListener::TestListener(trust::TicketBook& tickets, trust::ProcessIdentity& identity, Ways ways)
    : tickets_(tickets) {
  identity.listener_name = random_name();
  listeners_.push_back(listen_local(identity.listener_name));
  if (ways != Ways::local_only) {
    std::string address;
    listeners_.push_back(listen_loopback(ways == Ways::with_tcp4 ? AF_INET : AF_INET6, address));
    if (!listeners_.back().has_value()) give_up("listening on loopback");
    identity.addresses = {address};
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) give_up("pipe2");
  end_reader_ = FileDescriptor(ends[0]);
  end_writer_ = FileDescriptor(ends[1]);
  thread_ = std::thread([this] { serve(); });
}

TestListener::~TestListener() {
  end_writer_.reset();
  thread_.join();
}

void TestListener::serve() {
  std::vector<pollfd> ready = {{end_reader_.get(), POLLIN, 0}};
  for (const FileDescriptor& listener : listeners_) ready.push_back({listener.get(), POLLIN, 0});
  for (;;) {
    poll(ready.data(), ready.size(), -1);
    if (ready[0].revents != 0) return;
    for (std::size_t i = 1; i < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      FileDescriptor socket(accept4(ready[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.has_value()) admit(std::move(socket));
    }
  }
}

void TestListener::admit(FileDescriptor socket) {
  const auto hello = read_hello(socket);
  if (!hello.has_value() ||
      tickets_.redeem(hello->ticket, std::move(socket)) != trust::TicketBook::Redemption::good)
    ++turned_away_;
}

}  // namespace gyre::tests
