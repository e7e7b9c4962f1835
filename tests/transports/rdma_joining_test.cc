// How the two ends of rdma join: one of them late, and ports that cannot join.
#include "tests/support/catch.h"
#include "tests/support/transports/rdma_pair.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace rdma_joining_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr std::uint32_t bytes = 64 << 10;
constexpr FifoShape shape = {4, 2, bytes};

FakeNicOptions infiniband(const char* name, const char* gid) {
  return {.name = name, .ports = {{.link_layer = IBV_LINK_LAYER_INFINIBAND, .gids = {gid}}}};
}

// A process that may use those devices.
std::unique_ptr<Side> side_with(const char* devices) {
  pair_rdma_options().hca = devices;
  auto side = std::make_unique<Side>(Kind::rdma);
  pair_rdma_options().hca = "";
  return side;
}

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
  const FakeVerbsOptions nics = ports == 1 ? FakeVerbsOptions() : two_nics();
  const Network network(nics);
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

TEST_CASE("ports of InfiniBand are joined within a subnet", "[rdma]") {
  const Network network({.devices = {infiniband("ib0", "fe80::1"), infiniband("ib1", "fec0::2"),
                                     infiniband("ib2", "fe80::3"), infiniband("ib3", "fec0::4")}});
  struct Case {
    const char *receiving, *sending;
    std::vector<const char*> used;  // by the sender
  };
  const Case one = GENERATE(
      Case{"=ib0,ib1", "=ib1,ib2", {"ib1", "ib2"}}, Case{"=ib1,ib2", "=ib0,ib3", {"ib0", "ib3"}},
      Case{"", "", {"ib0", "ib1", "ib2", "ib3"}}, Case{"", "=ib0,ib3", {"ib0", "ib3"}});
  CAPTURE(one.receiving, one.sending);
  const auto receiving = side_with(one.receiving), sending = side_with(one.sending);
  Link link = open_link(*receiving, *sending, shape);
  REQUIRE(text_of(link.status) == "");
  SlotWriter out(link.sender->fifo());
  SlotReader in(link.receiver->fifo());
  fill(out.place(), bytes, 0);
  out.commit(bytes, message_flag(1, 1), DeliveryMode::staged);
  REQUIRE(pump(link, [&] { return in.has_message(); }));
  CHECK(is_filled(in.place(), bytes, 0));
  for (const char* const device : one.used) CHECK(network.fake.bytes_by(device) > 0);
}

TEST_CASE("a port that cannot be joined leaves the connection to the others", "[rdma]") {
  // Of the sender's queue pairs, to receive and to send; then of the receiver's.
  const int failing = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  CAPTURE(failing);
  Network network(two_nics());
  constexpr int prepared = 4;
  network.fake.fail_call("modify_qp", prepared + failing);
  JoinedPair pair(shape);
  REQUIRE(text_of(pair.link.status) == "");
  for (std::uint64_t number = 0; number < 6; ++number) {
    pair.send(bytes, number);
    CHECK(pair.arrives(bytes, number));
  }
  CHECK(text_of(pair.link.status) == "");
  const bool is_first = (failing - 1) % 4 < 2;
  CHECK(network.fake.bytes_by(is_first ? "fake1" : "fake0") >= 6 * bytes);
  CHECK(network.fake.bytes_by(is_first ? "fake0" : "fake1") == 0);
  CHECK(network.fake.unexpected() == 0);
}

TEST_CASE("a port without a route to its peer is left out, and the last one's lack is an error",
          "[rdma]") {
  Network network(two_nics());
  network.fake.cut_route("fake1");
  {
    JoinedPair pair(shape);
    REQUIRE(text_of(pair.link.status) == "");
    pair.send(bytes, 0);
    CHECK(pair.arrives(bytes, 0));
  }
  network.fake.cut_route("fake0");
  const JoinedPair pair(shape);
  CHECK(pair.link.status.code() == Code::RemoteError);
  CHECK(contains(pair.link.status, "finding the way to the peer's GID: ENETUNREACH"));
}

}  // namespace rdma_joining_test
