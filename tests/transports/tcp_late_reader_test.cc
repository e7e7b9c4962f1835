// tcp to a peer that is alive and reads late: neither this library nor the kernel ends the link.
#include "lib/base/clock.h"
#include "lib/transport/slots.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace tcp_late_reader_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

// Descriptors of this process's connected TCP sockets.
std::vector<int> tcp_sockets() {
  std::vector<int> found;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        info.tcpi_state == TCP_ESTABLISHED)
      found.push_back(descriptor);
  }
  return found;
}

constexpr FifoShape large{2, 2, 1 << 20};

// Messages of 1 MiB until the sender's end, both kernels and the path are full; how many.
std::uint64_t fill_path(Link& link) {
  SlotWriter out(link.sender->fifo());
  std::uint64_t messages = 0;
  std::int64_t moved_ns = SystemClock::read();
  while (link.status.ok() && SystemClock::read() < moved_ns + 300 * ns_per_ms) {
    link.status = link.sender->progress();
    if (!out.has_credit()) continue;
    out.commit(1 << 20, message_flag(++messages, 5), DeliveryMode::staged);
    moved_ns = SystemClock::read();
  }
  REQUIRE(link.status.ok());
  return messages;
}

}  // namespace

TEST_CASE("a peer that leaves a full window unread for long is no error", "[tcp]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  CAPTURE(kind);
  Side receiving(kind), sending(kind);
  Link link = open_link(receiving, sending, large);
  REQUIRE(link.status.ok());
  // The kernel would count it as silence, whoever is alive behind it.
  const std::vector<int> sockets = tcp_sockets();
  CHECK(sockets.size() == 2);
  for (const int socket : sockets) {
    int limit_ms = -1;
    socklen_t length = sizeof limit_ms;
    REQUIRE(getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &length) == 0);
    CHECK(limit_ms == 0);
  }
  const std::uint64_t messages = fill_path(link);
  const std::int64_t end_ns = SystemClock::read() + 3 * ns_per_s;
  while (SystemClock::read() < end_ns) {
    REQUIRE(link.sender->progress().ok());
    REQUIRE(link.sender->look_at_peer(SystemClock::read(), ns_per_s).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  SlotReader in(link.receiver->fifo());
  for (std::uint64_t i = 0; i < messages; ++i, in.release())
    REQUIRE(pump(link, [&] { return in.has_message(); }));
}

TEST_CASE("what a sender has left in the kernel reaches a peer that reads much later", "[tcp]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  CAPTURE(kind);
  Side receiving(kind), sending(kind);
  Link link = open_link(receiving, sending, large);
  REQUIRE(link.status.ok());
  const std::uint64_t messages = fill_path(link);
  SlotReader in(link.receiver->fifo());
  std::uint64_t read = 0;
  while (!link.sender->flushed() && read < messages) {
    REQUIRE(pump(link, [&] { return in.has_message() || link.sender->flushed(); }));
    if (in.has_message()) in.release(), ++read;
  }
  REQUIRE(link.sender->flushed());
  link.sender.reset();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
  for (Status status; status.ok() && read < messages && SystemClock::read() < end_ns;) {
    status = link.receiver->progress();
    INFO(status.message());
    CHECK(status.ok());
    if (in.has_message()) in.release(), ++read;
  }
  CHECK(read == messages);
}

}  // namespace tcp_late_reader_test
