// tcp against peers that lie, fall silent or go. For any use of the socket by the other end, this
// one reports an error that names the rank, and neither hangs nor reads outside its slots.
#include "lib/base/checksum.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/slots.h"
#include "lib/trust/address.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/wire.h"

#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <thread>

namespace tcp_peer_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

const FifoShape shape{4, 2, 4096};

// A receiving end of ours, and the bare socket of whoever came with its ticket.
struct Prey {
  Side side;
  explicit Prey(Kind kind = Kind::tcp4) : side(kind) {}
  std::unique_ptr<Connection> connection;
  FileDescriptor liar;
  Status status;

  // Until `ready()`, an error, or five seconds.
  template <typename Ready>
  bool until(Ready&& ready) {
    const std::int64_t end_ns = SystemClock::read() + 5 * ns_per_s;
    while (status.ok() && SystemClock::read() < end_ns) {
      status = connection->progress();
      if (status.ok() && ready()) return true;
      WaitSet set;
      connection->arm(set);
      set.sleep(ns_per_ms);
      connection->disarm();
    }
    return false;
  }
  void send_bytes(const void* data, std::size_t bytes) {
    REQUIRE(send(liar.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
  }
  // What the error has to say, besides the culprit.
  void expect_error(const std::string& text) {
    CHECK_FALSE(until([] { return false; }));
    CHECK(status.code() == Code::RemoteError);
    CHECK(status.culprits() == std::vector<int>{1});
    CHECK_THAT(std::string(status.message()), has_text(text));
    CHECK_THAT(std::string(status.message()), has_text("tcp from rank 1 (127.0.0.1:"));
    // Sticky, and the socket is gone.
    CHECK(connection->progress().message() == status.message());
  }
};

void meet(Prey& prey) {
  auto listening = prey.side.transport->listen({.peer = 1, .direction = Direction::receive}, shape,
                                               prey.side.identity);
  REQUIRE(listening.ok());
  prey.connection = std::move(listening->connection);
  const auto contents = decode_endpoint(listening->endpoint, "tcp", shape, 0);
  REQUIRE(contents.ok());
  bool pending = false;
  auto socket = trust::begin_connect(*trust::parse_address(contents->places.at(0)), &pending);
  REQUIRE(socket.ok());
  prey.liar = std::move(*socket);
  pollfd writable{prey.liar.get(), POLLOUT, 0};
  REQUIRE(poll(&writable, 1, 5000) == 1);
  trust::TicketHello hello;
  hello.ticket = contents->ticket;
  prey.send_bytes(&hello, sizeof hello);
  REQUIRE(prey.until([&] { return prey.connection->ready(); }));
}

WireHeader good_header(std::uint64_t sequence, std::uint32_t bytes) {
  WireHeader header;
  header.version = wire_version;
  header.communicator_hash = 77;
  header.epoch = 3;
  header.sequence = sequence;
  header.signature = message_flag(sequence + 1, 5);
  header.bytes = bytes;
  return header;
}

// Closes with a reset instead of an orderly end.
void reset_connection(FileDescriptor& socket) {
  const linger at_once{1, 0};
  REQUIRE(setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  socket.reset();
}

}  // namespace

TEST_CASE("a header with one wrong field ends the link and says which", "[tcp]") {
  struct Lie {
    const char* text;
    void (*tell)(WireHeader&);
  };
  const Lie lie =
      GENERATE(Lie{"wire version 3", [](WireHeader& h) { h.version = 3; }},
               Lie{"flags", [](WireHeader& h) { h.flags = 4; }},
               Lie{"comes in one part", [](WireHeader& h) { h.flags = wire_flag::more; }},
               Lie{"comes in one part", [](WireHeader& h) { h.offset = 8; }},
               Lie{"in no call, with flags 0x1", [](WireHeader& h) { h.flags = wire_flag::final; }},
               Lie{"place 8 in no call", [](WireHeader& h) { h.place = 8; }},
               Lie{"communicator", [](WireHeader& h) { h.communicator_hash = 78; }},
               Lie{"epoch", [](WireHeader& h) { h.epoch = 4; }},
               Lie{"channel 9", [](WireHeader& h) { h.channel = 9; }},
               Lie{"class", [](WireHeader& h) { h.traffic = TrafficClass::point_to_point; }},
               Lie{"message number 2; expected 1", [](WireHeader& h) { h.sequence = 2; }},
               Lie{"message number 0; expected 1", [](WireHeader& h) { h.sequence = 0; }},
               Lie{"expected 1", [](WireHeader& h) { h.sequence = ~std::uint64_t{0}; }},
               Lie{"up to byte 4097", [](WireHeader& h) { h.bytes = 4097; }},
               Lie{"up to byte 4097", [](WireHeader& h) { h.offset = 4089; }},
               Lie{"up to byte 4294967303", [](WireHeader& h) { h.offset = ~std::uint32_t{0}; }},
               Lie{"up to byte 4294967295", [](WireHeader& h) { h.bytes = ~std::uint32_t{0}; }});
  Prey prey;
  meet(prey);
  const WireHeader first = good_header(0, 0);
  prey.send_bytes(&first, sizeof first);
  SlotReader in(prey.connection->fifo());
  REQUIRE(prey.until([&] { return in.has_message(); }));
  in.release();
  WireHeader second = good_header(1, 8);
  lie.tell(second);
  prey.send_bytes(&second, sizeof second);
  prey.expect_error(lie.text);
  CHECK_FALSE(in.has_message());
}

TEST_CASE("with checksums no changed bit of a message is taken, without them none is expected",
          "[tcp]") {
  constexpr std::uint32_t bytes = 1000;
  const bool is_checked = GENERATE(true, false);
  const std::size_t changed_bit = GENERATE(8 * sizeof(WireHeader), 8 * sizeof(WireHeader) + 4321,
                                           8 * (sizeof(WireHeader) + bytes) - 1);
  Prey prey(is_checked ? Kind::tcp_checked : Kind::tcp4);
  meet(prey);
  std::vector<std::byte> message(sizeof(WireHeader) + bytes);
  WireHeader header = good_header(0, bytes);
  fill(message.data() + sizeof header, bytes, 0);
  const auto send_message = [&] {
    std::memcpy(message.data(), &header, sizeof header);
    if (is_checked) {
      Checksum sum;  // not begin_checksum: by the layout alone
      sum.add(message);
      header.checksum = sum.value();
      std::memcpy(message.data(), &header, sizeof header);
      header.checksum = 0;
    }
    if (header.sequence == 1) message[changed_bit / 8] ^= std::byte{1} << changed_bit % 8;
    prey.send_bytes(message.data(), message.size());
  };
  send_message();
  SlotReader in(prey.connection->fifo());
  REQUIRE(prey.until([&] { return in.has_message(); }));
  CHECK(is_filled(in.place(), bytes, 0));
  in.release();
  header = good_header(1, bytes);
  send_message();
  if (is_checked) {
    prey.expect_error("the bytes of message 1 were changed on their way");
    CHECK_FALSE(in.has_message());
  } else {
    CHECK(prey.until([&] { return in.has_message(); }));
  }
}

TEST_CASE("a checksum where none is agreed is an error", "[tcp]") {
  Prey prey;
  meet(prey);
  WireHeader header = good_header(0, 0);
  header.checksum = 7;
  prey.send_bytes(&header, sizeof header);
  prey.expect_error("checksum");
}

TEST_CASE("random bytes never become a message", "[tcp]") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  Prey prey;
  meet(prey);
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(1 + random() % 9000);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  prey.send_bytes(bytes.data(), bytes.size());
  reset_connection(prey.liar);
  SlotReader in(prey.connection->fifo());
  CHECK_FALSE(prey.until([&] { return in.has_message(); }));
  CHECK(prey.status.code() == Code::RemoteError);
}

TEST_CASE("a message that comes byte by byte is whole in the end", "[tcp]") {
  Prey prey;
  meet(prey);
  std::vector<std::byte> stream;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const WireHeader header = good_header(i, static_cast<std::uint32_t>(20 * i));
    const std::size_t at = stream.size();
    stream.resize(at + sizeof header + 20 * i);
    std::memcpy(stream.data() + at, &header, sizeof header);
    fill(stream.data() + at + sizeof header, 20 * i, i);
  }
  SlotReader in(prey.connection->fifo());
  std::uint64_t messages = 0;
  for (const std::byte& byte : stream) {
    prey.send_bytes(&byte, 1);
    REQUIRE(prey.connection->progress().ok());
    if (!in.has_message()) continue;
    CHECK(is_filled(in.place(), 20 * messages, messages));
    in.release();
    ++messages;
  }
  while (messages < 3 && prey.until([&] { return in.has_message(); })) in.release(), ++messages;
  CHECK(messages == 3);
}

TEST_CASE("an end in the middle of a message is an error, never short data", "[tcp]") {
  const bool reset = GENERATE(false, true);
  const std::size_t sent = GENERATE(1UL, 55UL, 56UL, 57UL, 1000UL);
  CAPTURE(reset, sent);
  Prey prey;
  meet(prey);
  std::vector<std::byte> message(sizeof(WireHeader) + 2000);
  const WireHeader header = good_header(0, 2000);
  std::memcpy(message.data(), &header, sizeof header);
  prey.send_bytes(message.data(), sent);
  if (reset)
    reset_connection(prey.liar);
  else
    prey.liar.reset();
  SlotReader in(prey.connection->fifo());
  prey.expect_error(reset ? "ECONNRESET" : sent < sizeof header ? "header" : "2000 bytes");
  CHECK_FALSE(in.has_message());
}

TEST_CASE("a peer that closes before its first message is an error once it is awaited", "[tcp]") {
  Prey prey;
  meet(prey);
  prey.liar.reset();
  for (int i = 0; i < 20; ++i) {
    CHECK(prey.connection->progress().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  prey.expect_error("closed the connection");
}

TEST_CASE("a sender whose peer is gone gets an error, not a signal and not silence", "[tcp]") {
  const bool reset = GENERATE(false, true);
  CAPTURE(reset);
  Side side(Kind::tcp4);
  std::string address;
  const auto listener = listen_loopback(AF_INET, address);
  REQUIRE(listener.has_value());
  EndpointContents contents{.transport = "tcp", .shape = shape, .places = {address}};
  auto connection = side.transport->connect({.peer = 7, .direction = Direction::send}, shape,
                                            encode_endpoint(contents));
  REQUIRE(connection.ok());
  FileDescriptor peer;
  SlotWriter out((*connection)->fifo());
  Status status;
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (status.ok() && SystemClock::read() < end_ns) {
    status = (*connection)->progress();
    if ((*connection)->ready() && out.has_credit()) out.commit(4096, 1, DeliveryMode::staged);
    if (peer.has_value()) {
      reset ? reset_connection(peer) : peer.reset();
    } else {
      peer = FileDescriptor(accept(listener.get(), nullptr, nullptr));
    }
  }
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{7});
  CHECK_THAT(std::string(status.message()), has_text("tcp to rank 7 (" + address + ")"));
}

TEST_CASE("what is sent over a connection that is broken is not counted as sent", "[tcp]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  CAPTURE(kind);
  Side receiving(kind), sending(kind);
  Link link = open_link(receiving, sending, shape);
  REQUIRE(link.status.ok());
  link.receiver.reset();
  SlotWriter out(link.sender->fifo());
  Status status;
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (status.ok() && SystemClock::read() < end_ns) {
    if (out.has_credit()) out.commit(4096, 1, DeliveryMode::staged);
    status = link.sender->progress();
  }
  CHECK(status.code() == Code::RemoteError);
  CHECK_THAT(std::string(status.message()), has_text("send: ") && has_text("tcp to rank"));
}

TEST_CASE("under TLS a link that breaks is called a data connection", "[tcp]") {
  Side receiving(Kind::tcp_tls), sending(Kind::tcp_tls);
  // A relay between the two ends, which the receiving end takes for the sending one.
  std::string address;
  const FileDescriptor listener = listen_loopback(AF_INET, address);
  std::swap(receiving.identity.addresses[0], address);
  FileDescriptor from, to;
  const auto relay = [&] {
    if (!to.has_value()) {
      from = FileDescriptor(accept(listener.get(), nullptr, nullptr));
      if (!from.has_value()) return;
      bool pending = false;
      auto begun = trust::begin_connect(*trust::parse_address(address), &pending);
      REQUIRE(begun.ok());
      to = std::move(*begun);
      pollfd open{to.get(), POLLOUT, 0};
      REQUIRE(poll(&open, 1, 5000) == 1);
    }
    char bytes[4096];
    for (auto [one, other] : {std::pair(from.get(), to.get()), std::pair(to.get(), from.get())})
      if (const ssize_t got = recv(one, bytes, sizeof bytes, MSG_DONTWAIT); got > 0)
        REQUIRE(send(other, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got);
  };
  auto listening = receiving.transport->listen({.peer = 5, .direction = Direction::receive}, shape,
                                               sending.identity);
  REQUIRE(listening.ok());
  auto connection = sending.transport->connect({.peer = 0, .direction = Direction::send}, shape,
                                               listening->endpoint);
  REQUIRE(connection.ok());
  Link link{std::move(listening->connection), std::move(*connection), {}, {}};
  REQUIRE(pump(link, [&] {
    relay();
    return link.receiver->ready() && link.sender->ready();
  }));
  reset_connection(to);
  CHECK_FALSE(pump(link, [] { return false; }));
  CHECK(link.status.code() == Code::RemoteError);
  CHECK(link.status.culprits() == std::vector<int>{5});
  const std::string text(link.status.message());
  CHECK_THAT(text, has_text("tcp from rank 5 (127.0.0.1:"));
  CHECK_THAT(text, has_text("its data connection broke"));
}

TEST_CASE("the second address is tried when the first refuses", "[tcp]") {
  Side receiving(Kind::tcp4), sending(Kind::tcp4);
  std::string closed;
  listen_loopback(AF_INET, closed).reset();
  receiving.identity.addresses.insert(receiving.identity.addresses.begin(), closed);
  Link link = open_link(receiving, sending, shape);
  CHECK(link.status.ok());
}

TEST_CASE("when no address takes us, the error names each and why", "[tcp]") {
  Side side(Kind::tcp4);
  std::string closed;
  listen_loopback(AF_INET, closed).reset();
  const EndpointContents contents{
      .transport = "tcp", .shape = shape, .places = {closed, "256.0.0.1:80", "nonsense"}};
  auto connection = side.transport->connect({.peer = 7, .direction = Direction::send}, shape,
                                            encode_endpoint(contents));
  REQUIRE(connection.ok());
  Status status;
  for (int i = 0; i < 5000 && status.ok(); ++i, std::this_thread::yield())
    status = (*connection)->progress();
  CHECK(status.code() == Code::RemoteError);
  const std::string text(status.message());
  CHECK_THAT(text, has_text(closed + ": ") && has_text("ECONNREFUSED"));
  CHECK_THAT(text, has_text("'256.0.0.1:80' is no address"));
  CHECK_THAT(text, has_text("'nonsense' is no address"));
}

TEST_CASE("under TLS an end without the secret gets nowhere", "[tcp]") {
  Side receiving(Kind::tcp_tls), sending(Kind::tcp_tls);
  auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive}, shape,
                                               sending.identity);
  REQUIRE(listening.ok());
  auto contents = decode_endpoint(listening->endpoint, "tcp", shape, 1);
  REQUIRE(contents.ok());
  CHECK(contents->secret != EndpointContents().secret);
  contents->secret[5] ^= 1;
  auto connection = sending.transport->connect({.peer = 0, .direction = Direction::send}, shape,
                                               encode_endpoint(*contents));
  REQUIRE(connection.ok());
  Link link{std::move(listening->connection), std::move(*connection), {}, {}};
  CHECK_FALSE(pump(link, [&] { return link.receiver->ready() || link.sender->ready(); }));
  CHECK(link.status.code() == Code::RemoteError);
}

TEST_CASE("under TLS an answer that is no handshake ends the link and is not asked for again",
          "[tcp]") {
  Side side(Kind::tcp_tls);
  std::string address;
  const FileDescriptor listener = listen_loopback(AF_INET, address);
  auto listening =
      side.transport->listen({.peer = 7, .direction = Direction::receive}, shape, side.identity);
  REQUIRE(listening.ok());
  auto contents = decode_endpoint(listening->endpoint, "tcp", shape, 7);
  REQUIRE(contents.ok());
  contents->places = {address};
  auto connection = side.transport->connect({.peer = 7, .direction = Direction::send}, shape,
                                            encode_endpoint(*contents));
  REQUIRE(connection.ok());
  int guests = 0;
  Status status;
  FileDescriptor peer;
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  while (status.ok() && SystemClock::read() < end_ns) {
    status = (*connection)->progress();
    FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
    if (!guest.has_value()) continue;
    ++guests;
    constexpr std::string_view answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    REQUIRE(send(guest.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0);
    peer = std::move(guest);
  }
  CHECK(guests == 1);
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{7});
  CHECK_THAT(std::string(status.message()), has_text("handshake"));
}

TEST_CASE("ends that do not agree on encryption do not meet", "[tcp]") {
  Side secret(Kind::tcp_tls), open(Kind::tcp4);
  for (const auto& [receiving, sending] : {std::pair{&secret, &open}, std::pair{&open, &secret}}) {
    const Link link = open_link(*receiving, *sending, shape);
    CHECK_THAT(std::string(link.status.message()), has_text("GYRE_TCP_SECURITY"));
  }
}

TEST_CASE("under TLS the payload is not on the wire", "[tcp]") {
  // A relay between the two ends keeps what it passes on.
  Side receiving(Kind::tcp_tls), sending(Kind::tcp_tls);
  std::string address;
  const FileDescriptor listener = listen_loopback(AF_INET, address);
  std::swap(receiving.identity.addresses[0], address);
  std::string seen;
  std::thread relay([&] {
    pollfd knock = {listener.get(), POLLIN, 0};  // it does not block
    if (poll(&knock, 1, 5000) <= 0) return;
    const FileDescriptor from(accept(listener.get(), nullptr, nullptr));
    bool pending = false;
    const auto to = trust::begin_connect(*trust::parse_address(address), &pending);
    if (!to.ok()) return;
    pollfd open = {to->get(), POLLOUT, 0};
    if (poll(&open, 1, 5000) <= 0) return;
    pollfd ends[] = {{from.get(), POLLIN, 0}, {to->get(), POLLIN, 0}};
    for (;;) {
      if (poll(ends, 2, 5000) <= 0) return;
      for (int i = 0; i < 2; ++i) {
        char bytes[4096];
        if (ends[i].revents == 0) continue;
        const ssize_t got = recv(ends[i].fd, bytes, sizeof bytes, 0);
        if (got <= 0) return;
        seen.append(bytes, static_cast<std::size_t>(got));
        (void)send(ends[1 - i].fd, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
  });
  const std::string text = "a gradient that nobody else may see";
  {
    Link link = open_link(receiving, sending, shape);
    if (!link.status.ok()) relay.join();
    INFO(link.status.message());
    REQUIRE(link.status.ok());
    SlotWriter out(link.sender->fifo());
    SlotReader in(link.receiver->fifo());
    std::memcpy(out.place(), text.data(), text.size());
    out.commit(static_cast<std::uint32_t>(text.size()), 1, DeliveryMode::staged);
    CHECK(pump(link, [&] { return in.has_message(); }));
    CHECK(std::memcmp(in.place(), text.data(), text.size()) == 0);
  }
  relay.join();
  CHECK(seen.size() > text.size() + sizeof(trust::TicketHello));
  CHECK(seen.find(text) == std::string::npos);
  CHECK(seen.find("gradient") == std::string::npos);
}

}  // namespace tcp_peer_test
