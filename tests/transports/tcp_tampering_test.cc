// tcp under TLS with a man in the middle, who changes, repeats, swaps, cuts and loses records: each
// ends the link with an error that names the peer, and nothing that he made is taken for data.
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "tests/support/trust/record_relay.h"

#include <cstring>

namespace tcp_tampering_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape{8, 2, 64 << 10};
constexpr int peer = 5;
using Attack = RecordRelay::Attack;

struct RelayedLink {
  explicit RelayedLink(Kind kind) : receiving(kind), sending(kind) {
    relay.lead_to(std::exchange(receiving.identity.addresses[0], relay.address()));
    auto listening = receiving.transport->listen({.peer = peer, .direction = Direction::receive},
                                                 shape, sending.identity);
    REQUIRE(listening.ok());
    auto connection = sending.transport->connect({.peer = 0, .direction = Direction::send}, shape,
                                                 listening->endpoint);
    REQUIRE(connection.ok());
    link = Link{std::move(listening->connection), std::move(*connection), {}, {}};
    REQUIRE(pump_through([&] { return link.receiver->ready() && link.sender->ready(); }));
    out = SlotWriter(link.sender->fifo());
    in = SlotReader(link.receiver->fifo());
  }
  bool pump_through(const std::function<bool()>& done) {
    return pump(link, [&] {
      relay.step();
      return done();
    });
  }
  void commit(std::uint32_t bytes) {
    fill(out.place(), bytes, out.tail());
    out.commit(bytes, out.tail() + 1, DeliveryMode::staged);
  }
  // All that has come is what was sent, in order.
  std::uint64_t take_good() {
    while (in.has_message()) {
      CHECK(in.note().flag == in.head() + 1);
      CHECK(is_filled(in.place(), in.note().bytes, in.head()));
      in.release();
    }
    return in.head();
  }

  Side receiving, sending;
  RecordRelay relay;
  Link link;
  SlotWriter out;
  SlotReader in;
};

}  // namespace

TEST_CASE("a man in the middle who passes all on changes nothing", "[tcp]") {
  RelayedLink relayed(Kind::tcp_tls);
  for (const std::uint32_t bytes : {0u, 100u, 16'384u, 65'536u, 40'000u}) relayed.commit(bytes);
  CHECK(relayed.pump_through([&] { return relayed.take_good() == 5; }));
}

TEST_CASE("under TLS a changed, repeated, swapped, cut or lost record ends the link", "[tcp]") {
  struct Case {
    Attack attack;
    std::uint64_t delivered;  // of the messages behind the first one
    const char* text;
  };
  const auto [attack, delivered, text] =
      GENERATE(Case{Attack::flip, 0, "was changed, repeated, reordered or lost"},
               Case{Attack::flip_tag, 0, "was changed, repeated, reordered or lost"},
               Case{Attack::repeat, 1, "was changed, repeated, reordered or lost"},
               Case{Attack::swap, 0, "was changed, repeated, reordered or lost"},
               Case{Attack::lose, 0, "was changed, repeated, reordered or lost"},
               Case{Attack::cut, 0, "cut short in a TLS record"},
               Case{Attack::end, 0, "the peer closed the connection"});
  RelayedLink relayed(Kind::tcp_tls);
  relayed.commit(1000);
  REQUIRE(relayed.pump_through([&] { return relayed.take_good() == 1; }));
  relayed.relay.arm(RecordRelay::Way::there, attack);
  // Each message leaves in a record of its own.
  for (int i = 0; i < 3; ++i) {
    relayed.commit(2000);
    relayed.pump_through([&] { return relayed.link.sender->flushed(); });
  }
  WaitSet set;
  CHECK_FALSE(relayed.pump_through([&] {
    relayed.take_good();
    relayed.link.receiver->arm(set);  // waiting for more is what makes an end an error
    set = WaitSet();
    return false;
  }));
  CHECK(relayed.relay.has_struck());
  CHECK(relayed.take_good() == 1 + delivered);
  const Status failure = relayed.link.receiver->progress();
  CAPTURE(failure.message());
  CHECK(failure.code() == Code::RemoteError);
  CHECK(failure.culprits() == std::vector<int>{peer});
  CHECK(std::string(failure.message()).find("tcp from rank 5") != std::string::npos);
  CHECK(std::string(failure.message()).find(text) != std::string::npos);
}

}  // namespace tcp_tampering_test
