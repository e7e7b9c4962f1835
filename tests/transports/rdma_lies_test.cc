// Peers of rdma that lie, over fake devices: each lie is an error that says what was wrong, and
// whose message it was.
#include "lib/transport/endpoint.h"
#include "tests/fuzz/lying_receiver.h"
#include "tests/fuzz/lying_sender.h"
#include "tests/support/catch.h"
#include "tests/support/transports/post_office.h"
#include "tests/support/transports/rdma_pair.h"
#include "transports/rdma/address.h"
#include "transports/rdma/rdma.h"

#include <cstring>
#include <endian.h>
#include <functional>
#include <string>
#include <vector>

namespace rdma_lies_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;
using fuzz::LyingReceiver;
using fuzz::LyingSender;

namespace {

std::uint32_t immediate(NoticeKind kind, std::uint32_t number, std::uint8_t round = 0) {
  return Notice{kind, number, round}.to_immediate();
}
const std::uint32_t no_notice = htobe32(7U << 29);

// Of one byte of a note: sequence, signature, bytes, pieces, place.
constexpr std::uint8_t sequence_byte = 0, low_bytes = 16, high_bytes = 17, pieces_byte = 20,
                       place_byte = 22;

template <typename Peer>
struct Lie {
  std::function<void(Peer&)> tell;
  const char* found;
};

template <typename Peer>
void check_found_out(const Lie<Peer>& lie, Peer& peer) {
  CAPTURE(lie.found);
  REQUIRE(text_of(peer.status()) == "");
  lie.tell(peer);
  INFO(peer.status().message());
  CHECK(peer.status().code() == Code::RemoteError);
  CHECK(peer.status().culprits() == std::vector<int>{1});
  CHECK(contains(peer.status(), lie.found));
}

}  // namespace

TEST_CASE("a sender that lies is found out by the receiver", "[rdma]") {
  const auto notice = [](NoticeKind kind, std::uint32_t number, std::size_t pair = 0) {
    return [=](LyingSender& peer) { peer.notify(pair, immediate(kind, number)); };
  };
  const auto note = [](std::uint8_t place, std::uint8_t change) {
    return
        [=](LyingSender& peer) { peer.send_message(std::vector<std::uint8_t>(8), place, change); };
  };
  constexpr const char* not_ours = "a notice that is not ours";
  constexpr const char* no_loss = "asks about a rail that it cannot have lost";
  for (const Lie<LyingSender>& lie : std::initializer_list<Lie<LyingSender>>{
           {[](LyingSender& peer) { peer.notify(0, no_notice); }, not_ours},
           {notice(NoticeKind::credit, 0), not_ours},
           {notice(NoticeKind::resume, 0), not_ours},
           {notice(NoticeKind::grant, 0), not_ours},
           {notice(NoticeKind::lost, 2), no_loss},
           {notice(NoticeKind::lost, 0), no_loss},
           {notice(NoticeKind::lost, 1, 2), no_loss},
           {notice(NoticeKind::lost, RailQuestion{1, 5}.to_number()),
            "says that message 4 has come; 4 were on their way"},
           {notice(NoticeKind::close, 5), "says that message 4 has come; 4 were on their way"},
           {notice(NoticeKind::message, 4), "message 4 came in place of 0"},
           {note(sequence_byte, 1), "message number 1; expected 0"},
           {note(high_bytes, 0xff), "bytes of payload; a slot has 512"},
           {note(low_bytes, 0xf0), "248 bytes beside its note; at most 232 fit"},
           {note(pieces_byte, 1), "1 pieces of a message beside its note"},
           {note(place_byte, 0x10), "unknown place 17"},
           {note(place_byte, 3), "message 0 is in memory that was not lent"},
           {[&](LyingSender& peer) {
              notice(NoticeKind::message, 0, 1)(peer);
              note(sequence_byte, 0)(peer);
            },
            "more has come of message 0 than it has"}}) {
    LyingSender peer(2, {});
    check_found_out(lie, peer);
  }
}

TEST_CASE("a receiver that lies is found out by the sender", "[rdma]") {
  const auto notice = [](NoticeKind kind, std::uint32_t number) {
    return [=](LyingReceiver& peer) { peer.notify(0, immediate(kind, number)); };
  };
  constexpr const char* not_ours = "a notice that is not ours";
  for (const Lie<LyingReceiver>& lie : std::initializer_list<Lie<LyingReceiver>>{
           {[](LyingReceiver& peer) { peer.notify(0, no_notice); }, not_ours},
           {notice(NoticeKind::message, 0), not_ours},
           {notice(NoticeKind::taken, 0), not_ours},
           {notice(NoticeKind::lost, 2), "has lost a rail that is not there"},
           {[&](LyingReceiver& peer) {
              notice(NoticeKind::lost, 1)(peer);
              notice(NoticeKind::lost, 0)(peer);
            },
            "the peer has lost it"},
           {notice(NoticeKind::credit, 5), "tells of message 5; 0 were sent"},
           {[&](LyingReceiver& peer) {
              notice(NoticeKind::credit, 0)(peer);
              notice(NoticeKind::lost, 1)(peer);
              peer.notify(0, immediate(NoticeKind::resume, 9, 1));
            },
            "waits for message 9; 0 were sent"},
           {[](LyingReceiver& peer) { peer.grant(1, 0, 2); }, "a grant that is not ours"},
           {[&](LyingReceiver& peer) {
              peer.grant(1, 0, 0);
              peer.commit(64);
              peer.grant(2, 0, 0);
              notice(NoticeKind::credit, 0)(peer);
            },
            "lends anew before message 0 has left"}}) {
    LyingReceiver peer(1);
    check_found_out(lie, peer);
  }
}

TEST_CASE("a grant is checked before it is believed", "[rdma]") {
  const RdmaGrant good{.sequence = 7, .address = 4096, .bytes = 4096, .stores_all = 1};
  CHECK(grant_fault(good, 7) == "");
  CHECK(grant_fault(good, 8) == "call number 7; the notice says 8");
  RdmaGrant bad = good;
  bad.bytes = UINT64_MAX - 4095;
  CHECK(grant_fault(bad, 7) == "18446744073709547520 bytes at 0x1000");
  bad = good;
  bad.stores_all = 2;
  CHECK(grant_fault(bad, 7) == "unknown promise 2");
}

namespace {

// An endpoint as a receiver makes it, changed, and how the sender takes it.
class ChangedEndpoint {
  Side receiving_{Kind::rdma}, sending_{Kind::rdma};  // outlive the connection

 public:
  using Change = std::function<void(EndpointContents&, RdmaAddress&)>;

  Status connect(const Change& change) {
    auto listening = receiving_.transport->listen({.peer = 1, .direction = Direction::receive},
                                                  small_shape, sending_.identity);
    GYRE_TRY(listening.status());
    GYRE_ASSIGN(EndpointContents contents,
                decode_endpoint(listening->endpoint, "rdma", small_shape, 0));
    const auto bytes_of = [](const std::string& place) {
      return std::span(reinterpret_cast<const std::uint8_t*>(place.data()), place.size());
    };
    auto address = decode_rdma_address(bytes_of(contents.places[0]));
    REQUIRE(address.has_value());
    const std::string before = contents.places[0];
    change(contents, *address);
    if (!contents.places.empty() && contents.places[0] == before) contents.places[0] = of(*address);
    return connect_to(encode_endpoint(contents));
  }
  Status connect_to(const Endpoint& endpoint) {
    auto made = sending_.transport->connect({.peer = 0, .direction = Direction::send}, small_shape,
                                            endpoint);
    if (made.ok()) sender = std::move(*made);
    return made.status();
  }
  static std::string of(const RdmaAddress& address) {
    const std::vector<std::uint8_t> bytes = encode(address);
    return {bytes.begin(), bytes.end()};
  }
  std::unique_ptr<Connection> sender;
};

}  // namespace

TEST_CASE("an endpoint that no receiver has made is refused", "[rdma]") {
  const Network network;
  struct Lie {
    ChangedEndpoint::Change change;
    const char* found;
  };
  for (const Lie& lie : std::initializer_list<Lie>{
           {[](auto&contents, auto&) { contents.places[0] = "x"; }, "is malformed"},
           {[](auto&contents, auto&) { contents.places.resize(5, contents.places[0]); },
            "names no port, or many"},
           {[](auto&, auto&address) { address.window = 3; }, "has a window of 3 messages"},
           {[](auto&, auto&address) { address.window = 8; }, "of 8 messages for 4 slots"},
           {[](auto&contents, auto&address) {
              contents.places.push_back(contents.places[0]);
              address.window = 2;
            },
            "has unequal ports"},
           {[](auto&, auto&address) { address.network = RdmaNetwork::infiniband; },
            "is on InfiniBand, where this process has no port"}}) {
    CAPTURE(lie.found);
    const Status refused = ChangedEndpoint().connect(lie.change);
    INFO(refused.message());
    CHECK(refused.code() == Code::RemoteError);
    CHECK(refused.culprits() == std::vector<int>{0});
    CHECK(contains(refused, lie.found));
  }
  CHECK(text_of(ChangedEndpoint().connect([](auto&, auto&) {})) == "");
  CHECK(network.fake.live() == "");
}

TEST_CASE("an endpoint is connected to once", "[rdma]") {
  const Network network;
  ChangedEndpoint changed;
  Endpoint endpoint;
  REQUIRE(
      changed.connect([&](auto& contents, auto&) { endpoint = encode_endpoint(contents); }).ok());
  CHECK(contains(changed.connect_to(endpoint), "was connected to before"));
  endpoint.pop_back();
  CHECK(changed.connect_to(endpoint).code() == Code::RemoteError);
}

TEST_CASE("an endpoint of more queue pairs than a device has room for is refused", "[rdma]") {
  FakeVerbsOptions machine;
  machine.devices[0].max_completions = 80;
  const Network network(machine);
  CHECK(contains(ChangedEndpoint().connect(
                     [](auto&, RdmaAddress& address) { address.pairs.resize(max_queue_pairs); }),
                 "too short for 16 queue pairs"));
}

TEST_CASE("an answer that is not to this endpoint is refused", "[rdma]") {
  Network network;
  Side receiving(Kind::rdma), sending(Kind::rdma);
  const auto listen = [&] {
    auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                                 small_shape, sending.identity);
    REQUIRE(listening.ok());
    return std::move(*listening);
  };
  // The answer with which a sender would join, changed.
  const auto refused = [&](const std::function<void(std::vector<std::uint8_t>&)>& change) {
    Listening listening = listen();
    auto sender = sending.transport->connect({.peer = 0, .direction = Direction::send}, small_shape,
                                             listening.endpoint);
    REQUIRE(sender.ok());
    const auto contents = decode_endpoint(listening.endpoint, "rdma", small_shape, 0);
    REQUIRE(contents.ok());
    std::uint64_t key = 0;
    std::memcpy(&key, contents->ticket.data(), 7);
    auto answer = post_office().receive(1, key);
    REQUIRE(answer.has_value());
    change(*answer);
    REQUIRE(post_office().send(0, key, *answer).ok());
    return listening.connection->progress();
  };
  CHECK(refused([](auto&) {}).ok());
  CHECK(contains(refused([](auto& bytes) { bytes[0] ^= 1; }), "shows another ticket"));
  CHECK(contains(refused([](auto& bytes) { bytes.pop_back(); }), "malformed"));
  CHECK(contains(refused([](auto& bytes) { bytes.clear(); }), "malformed"));
  // Behind ticket, count and length: the version of the first address.
  CHECK(contains(refused([](auto& bytes) { bytes[32 + 1 + 4] ^= 1; }), "malformed"));
  CHECK(contains(refused([](auto& bytes) {
                   auto answer = decode_rdma_answer(bytes);
                   answer->rails[0]->pairs.push_back({1, 1});
                   bytes = encode(*answer);
                 }),
                 "2 queue pairs"));
  CHECK(contains(refused([](auto& bytes) {
                   auto answer = decode_rdma_answer(bytes);
                   answer->rails[0]->network = RdmaNetwork::infiniband;
                   bytes = encode(*answer);
                 }),
                 "on InfiniBand"));
  CHECK(contains(refused([](auto& bytes) {
                   auto answer = decode_rdma_answer(bytes);
                   answer->rails[0].reset();
                   bytes = encode(*answer);
                 }),
                 "the peer uses none of the ports"));
}

TEST_CASE("a sender that cannot send its answer is not joined", "[rdma]") {
  const Network network;
  Side receiving(Kind::rdma), sending(Kind::rdma);
  auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                               small_shape, sending.identity);
  REQUIRE(listening.ok());
  TransportLetters letters = post_office();
  letters.send = [](auto...) { return Status(Code::RemoteError, "rank 0 has left"); };
  const auto transport = make_rdma_transport({.self = sending.identity,
                                              .tickets = sending.tickets,
                                              .letters = letters,
                                              .verbs = pair_verbs()});
  CHECK(contains(transport->connect({.peer = 0}, small_shape, listening->endpoint).status(),
                 "rank 0 has left"));
}

// What a rail that is lost brings last is old, and no lie.
TEST_CASE("a grant that comes after a newer one is not taken", "[rdma]") {
  LyingReceiver receiver(1);
  receiver.notify(0, immediate(NoticeKind::credit, 0));
  receiver.grant(1, 0, 0);
  receiver.grant(3, 0, 0);
  CHECK(receiver.granted() == 2);
  receiver.grant(2, 0, 0);
  CHECK(receiver.status().ok());
  CHECK(receiver.granted() == 2);
  // Attempts are counted in eight bits.
  for (int i = 1; i <= 8; ++i) {
    receiver.grant(static_cast<std::uint8_t>(3 + 90 * i), 0, 0);
    REQUIRE(receiver.status().ok());
    CHECK(receiver.granted() == static_cast<std::uint64_t>(3 + i));
  }
}

TEST_CASE("a credit that comes after a newer one blames nobody", "[rdma]") {
  LyingReceiver receiver(1);
  receiver.notify(0, immediate(NoticeKind::credit, 0));
  for (int i = 0; i < 3; ++i) receiver.commit(8);
  receiver.notify(0, immediate(NoticeKind::credit, 3));
  receiver.notify(1, immediate(NoticeKind::credit, 1));
  CHECK(receiver.status().ok());
  receiver.commit(8);
  CHECK(receiver.status().ok());
  receiver.notify(0, immediate(NoticeKind::credit, 5));
  CHECK_FALSE(receiver.status().ok());  // it was not sent
}

}  // namespace rdma_lies_test
