// tcp: both directions between two ranks on one channel share a socket, whoever dials. Each end
// checks the other's ticket, so a socket cannot be claimed for another link.
#include "lib/transport/endpoint.h"
#include "lib/transport/slots.h"
#include "lib/trust/address.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <filesystem>
#include <poll.h>
#include <set>
#include <sys/socket.h>

namespace tcp_pair_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

const FifoShape shape{4, 2, 4096};

// How many different sockets this process holds; copies of a descriptor are one.
std::size_t count_sockets() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:")) sockets.insert(target);
  }
  return sockets.size();
}

struct Ways {
  Listening listening;
  std::unique_ptr<Connection> sender;
};

Ways listen(Side& side, int peer, const Side& other) {
  auto listening = side.transport->listen({.peer = peer, .direction = Direction::receive}, shape,
                                          other.identity);
  REQUIRE(listening.ok());
  return {std::move(*listening), nullptr};
}

void connect(Side& side, int peer, Ways& own, const Ways& others) {
  auto sender = side.transport->connect({.peer = peer, .direction = Direction::send}, shape,
                                        others.listening.endpoint);
  REQUIRE(sender.ok());
  own.sender = std::move(*sender);
}

// Until all are ready or one fails.
Status join(const std::vector<Connection*>& connections) {
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (SystemClock::read() < end_ns) {
    bool ready = true;
    for (Connection* connection : connections) {
      GYRE_TRY(connection->progress());
      ready &= connection->ready();
    }
    if (ready) return {};
    sched_yield();
  }
  return Status(Code::Timeout, "they do not meet");
}

void exchange(Connection& sender, Connection& receiver, std::uint64_t number) {
  SlotWriter out(sender.fifo());
  SlotReader in(receiver.fifo());
  fill(out.place(), 3000, number);
  out.commit(3000, message_flag(1, 5), DeliveryMode::staged);
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (!in.has_message() && SystemClock::read() < end_ns) {
    REQUIRE(sender.progress().ok());
    REQUIRE(receiver.progress().ok());
  }
  REQUIRE(in.has_message());
  CHECK(is_filled(in.place(), 3000, number));
}

}  // namespace

TEST_CASE("both ways of a channel go over one socket, encrypted ones over two", "[tcp]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  // Which end dials is up to the tickets, which are random.
  for (int i = 0; i < 6; ++i) {
    Side one(kind), two(kind);
    const std::size_t before = count_sockets();
    Ways a = listen(one, 1, two), b = listen(two, 0, one);
    connect(one, 1, a, b);
    connect(two, 0, b, a);
    const Status joined = join({a.sender.get(), b.sender.get(), a.listening.connection.get(),
                                b.listening.connection.get()});
    INFO(joined.message());
    REQUIRE(joined.ok());
    // Both ends of each are this process's.
    CHECK(count_sockets() - before == (kind == Kind::tcp4 ? 2U : 4U));
    exchange(*a.sender, *b.listening.connection, 1);
    exchange(*b.sender, *a.listening.connection, 2);
  }
}

TEST_CASE("one way of a pair may end before the other", "[tcp]") {
  Side one(Kind::tcp4), two(Kind::tcp4);
  Ways a = listen(one, 1, two), b = listen(two, 0, one);
  connect(one, 1, a, b);
  connect(two, 0, b, a);
  REQUIRE(join({a.sender.get(), b.sender.get(), a.listening.connection.get(),
                b.listening.connection.get()})
              .ok());
  a.sender.reset();
  exchange(*b.sender, *a.listening.connection, 3);
  // The end that waits for more of the way that ended is told so.
  WaitSet set;
  Connection& waiting = *b.listening.connection;
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  Status status;
  while (status.ok() && SystemClock::read() < end_ns) {
    status = waiting.progress();
    waiting.arm(set);
  }
  CHECK_THAT(std::string(status.message()), has_text("closed the connection"));
}

namespace {

// A rank that dials, and a listener of the test's in place of its peer's.
struct Dialing {
  Dialing() {
    listener = listen_loopback(AF_INET, address);
    ways = listen(side, 1, peer);
    contents.places = {address};
    contents.ticket.fill(0xff);  // the greater ticket's issuer waits for us to dial
    auto made = side.transport->connect({.peer = 1, .direction = Direction::send}, shape,
                                        encode_endpoint(contents));
    REQUIRE(made.ok());
    ways.sender = std::move(*made);
  }
  // One turn of both ends.
  Status advance() {
    GYRE_TRY(ways.listening.connection->progress());
    return ways.sender->progress();
  }
  // Whoever dialed next, and has shown the ticket.
  FileDescriptor next_guest() {
    pollfd ready{listener.get(), POLLIN, 0};
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    while (poll(&ready, 1, 0) <= 0 && SystemClock::read() < end_ns) status = advance();
    FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
    REQUIRE(guest.has_value());
    for (int i = 0; i < 100; ++i) status = advance();
    REQUIRE(recv(guest.get(), &hello, sizeof hello, MSG_WAITALL) == sizeof hello);
    CHECK(hello.ticket == contents.ticket);
    return guest;
  }

  Side side{Kind::tcp4};
  const Side peer{Kind::tcp4};
  std::string address;
  FileDescriptor listener;
  EndpointContents contents{.transport = "tcp", .shape = shape, .places = {}};
  Ways ways;
  trust::TicketHello hello;
  Status status;
};

}  // namespace

TEST_CASE("who shows another ticket on the way back is not this link's peer", "[tcp]") {
  Dialing dialing;
  const FileDescriptor liar = dialing.next_guest();
  dialing.hello.ticket[7] ^= 1;
  REQUIRE(send(liar.get(), &dialing.hello, sizeof dialing.hello, MSG_NOSIGNAL) ==
          static_cast<ssize_t>(sizeof dialing.hello));
  const Status status = join({dialing.ways.listening.connection.get()});
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{1});
  CHECK_THAT(std::string(status.message()), has_text("ticket"));
}

TEST_CASE("a listener that closes before it has answered is dialed again", "[tcp]") {
  Dialing dialing;
  // Besieged: half an answer, none, and one that is reset.
  for (int trial = 0; trial < 3; ++trial) {
    FileDescriptor guest = dialing.next_guest();
    CHECK_FALSE(dialing.ways.sender->ready());
    if (trial == 0) REQUIRE(send(guest.get(), &dialing.hello, 20, MSG_NOSIGNAL) == 20);
    const linger at_once{1, 0};
    if (trial == 2)
      REQUIRE(setsockopt(guest.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  }
  const FileDescriptor guest = dialing.next_guest();
  const EndpointContents own = *decode_endpoint(dialing.ways.listening.endpoint, "tcp", shape, 0);
  dialing.hello.ticket = own.ticket;
  REQUIRE(send(guest.get(), &dialing.hello, sizeof dialing.hello, MSG_NOSIGNAL) ==
          static_cast<ssize_t>(sizeof dialing.hello));
  CHECK(join({dialing.ways.sender.get(), dialing.ways.listening.connection.get()}).ok());
}

TEST_CASE("a listener that never answers is an error in the end", "[tcp]") {
  Dialing dialing;
  const std::int64_t end_ns = SystemClock::read() + 20 * ns_per_s;
  pollfd ready{dialing.listener.get(), POLLIN, 0};
  while (dialing.status.ok() && SystemClock::read() < end_ns) {
    dialing.status = dialing.advance();
    if (poll(&ready, 1, 0) > 0)
      FileDescriptor(accept(dialing.listener.get(), nullptr, nullptr)).reset();
  }
  CHECK(dialing.status.code() == Code::RemoteError);
  CHECK_THAT(std::string(dialing.status.message()), has_text("closed 8 connections"));
}

}  // namespace tcp_pair_test
