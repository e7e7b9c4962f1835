// How the two ends of rdma join: one of them late, and ports that cannot join.
#include "tests/support/catch.h"
#include "tests/support/transports/rdma_pair.h"

#include <cstdint>
#include <memory>

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::uint32_t bytes = 64 << 10;
constexpr FifoShape shape = {4, 2, bytes};

// A sender whose receiver has listened, and does nothing until it is asked to.
struct EarlySender {
  EarlySender() {
    auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                                 shape, sending.identity);
    REQUIRE(listening.ok());
    link.receiver = std::move(listening->connection);
    auto sender = sending.transport->connect({.peer = 0, .direction = Direction::send}, shape,
                                             listening->endpoint);
    REQUIRE(text_of(sender.status()) == "");
    link.sender = std::move(*sender);
  }
  Side receiving{Kind::rdma}, sending{Kind::rdma};
  Link link;
};

}  // namespace

TEST_CASE("a receiver that has listened and then computes for long is not taken for dead",
          "[rdma]") {
  const int ports = GENERATE(1, 2);
  CAPTURE(ports);
  const Network network(ports == 1 ? FakeVerbsOptions{} : two_nics());
  EarlySender early;
  for (const std::int64_t at : {50, 60, 70})
    CHECK(text_of(early.link.sender->look_at_peer(at * ns_per_s, 10 * ns_per_s)) == "");
  REQUIRE(pump(early.link, [&] { return early.link.sender->ready(); }));
  // Over all ports.
  SlotWriter out(early.link.sender->fifo());
  SlotReader in(early.link.receiver->fifo());
  fill(out.place(), bytes, 0);
  out.commit(bytes, message_flag(1, 1), DeliveryMode::staged);
  REQUIRE(pump(early.link, [&] { return in.has_message(); }));
  CHECK(is_filled(in.place(), bytes, 0));
  CHECK((network.fake.bytes_by("fake1") > 0) == (ports == 2));
  for (const std::int64_t at : {100, 101, 200})
    CHECK(text_of(early.link.sender->look_at_peer(at * ns_per_s, 10 * ns_per_s)) == "");
}
