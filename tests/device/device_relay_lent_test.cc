// Relays over NICs that reach the rings of both ends, of one, or of none: which bytes are copied,
// and that all arrives, whatever fails.
#include "lib/transport/carrier.h"
#include "tests/support/device/relay_pair.h"
#include "tests/support/transports/rdma_pair.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace device_relay_lent_test {

using namespace gyre;
using namespace gyre::exec;
using namespace gyre::tests;
using transport::DeliveryMode;

namespace {

// Of its messages some are worth another request to the NIC, and some are not.
constexpr DeviceShape shape = {
    .channels = 3, .slot_bytes = 16 << 10, .slot_shift = 1, .ll_shift = 2, .ll128_shift = 2};
constexpr std::uint64_t messages = 60;

// Of the payload on one way: what the NIC took from where kernels wrote it, and put where they
// read it.
struct MovedByNic {
  std::uint64_t from_mirror = 0, into_own = 0;
};
MovedByNic moved(const FakeVerbs& fake, const RelayPair& pair, std::size_t from) {
  return {fake.bytes_from(pair.halves[from].link.peers_rings),
          fake.bytes_into(pair.halves[1 - from].link.own_rings)};
}

// Of so many messages on each channel, in messages that are long enough.
std::uint64_t long_bytes() {
  std::uint64_t bytes = 0;
  for (std::uint64_t number = 0; number < messages; ++number)
    if (relayed_bytes(shape, number) >= transport::min_lent_bytes)
      bytes += relayed_bytes(shape, number);
  return bytes * shape.channels;
}

RelayPair::Options all_lent() {
  return {.shape = shape, .first = 0, .holds = {true, true}, .lends = {true, true}};
}

}  // namespace

TEST_CASE("NICs move what the ends of a relay let them reach, and relays the rest", "[relay]") {
  const bool holds = GENERATE(false, true), lends = GENERATE(false, true);
  const std::uint64_t first = GENERATE(0ULL, (1ULL << 24) - 20, (1ULL << 40) - 5, ~0ULL - 5);
  // 0: at once, in order.
  const std::uint64_t seed = GENERATE(0ULL, 1ULL);
  CAPTURE(holds, lends, first, seed);
  Network network({.devices = two_nics().devices, .seed = seed});
  RelayPair pair(Kind::rdma,
                 {.shape = shape, .first = first, .holds = {holds, true}, .lends = {true, lends}});
  REQUIRE(pair.stream(messages, first, 3, rng_seed()));
  // From rank 0 to rank 1 as drawn; back by NICs alone.
  const MovedByNic there = moved(network.fake, pair, 0), back = moved(network.fake, pair, 1);
  std::uint64_t expected = 0;
  for (std::uint64_t number = first; number != first + messages; ++number)
    if (relayed_bytes(shape, number) >= transport::min_lent_bytes)
      expected += relayed_bytes(shape, number) * shape.channels;
  CHECK(there.from_mirror == (holds ? expected : 0));
  CHECK(there.into_own == (lends ? expected : 0));
  CHECK(back.from_mirror == expected);
  CHECK(back.into_own == expected);
  pair.leave();
}

TEST_CASE("a relay over NICs goes on over one of them if the other is lost", "[relay]") {
  Network network({.devices = two_nics().devices, .seed = GENERATE(0ULL, 1ULL)});
  RelayPair pair(Kind::rdma, all_lent());
  REQUIRE(pair.stream(messages, 0, 2, rng_seed()));
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  network.fake.give_up();
  // The numbers go on.
  for (RelayHalf& half : pair.halves)
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
      CHECK(*half.sender(channel).next == messages);
  std::thread loses([&] {
    for (int turn = 0; turn < 50; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      network.fake.give_up();
    }
  });
  const bool all_came = pair.stream(2 * messages, 0, 2, rng_seed() + 1);
  loses.join();
  REQUIRE(all_came);
  CHECK(moved(network.fake, pair, 0).into_own >= 2 * long_bytes());
  pair.leave();
}

TEST_CASE("where a NIC refuses the rings, relays copy", "[relay]") {
  const int refused = GENERATE(1, 2, 3, 4);
  CAPTURE(refused);
  Network network;
  RelayPair pair(Kind::rdma, {.shape = shape});
  for (std::size_t i = 0; i < 2; ++i) {
    Side& side = i == 0 ? pair.near : pair.other;
    for (std::byte* const rings : {pair.halves[i].link.own_rings, pair.halves[i].link.peers_rings})
      (void)side.lasting->add({rings, shape.relay_rings_bytes()});
  }
  const transport::FifoShape fifo = DeviceRelay::fifo_shape(shape);
  Link there = open_link(pair.other, pair.near, fifo),
       back = open_link(pair.near, pair.other, fifo);
  REQUIRE(there.status.ok());
  REQUIRE(back.status.ok());
  network.fake.fail_call("reg_mr", refused);
  pair.relays[0] = std::make_unique<DeviceRelay>(1, shape, pair.halves[0].link,
                                                 std::move(there.sender), std::move(back.receiver));
  pair.relays[1] = std::make_unique<DeviceRelay>(0, shape, pair.halves[1].link,
                                                 std::move(back.sender), std::move(there.receiver));
  REQUIRE(pair.stream(messages, 0, 3, rng_seed()));
  int lent = 0;
  for (std::size_t from = 0; from < 2; ++from) {
    const MovedByNic by_nic = moved(network.fake, pair, from);
    lent += (by_nic.from_mirror > 0) + (by_nic.into_own > 0);
  }
  CHECK(lent == 3);
  pair.leave();
}

TEST_CASE("what a wire has pushed out of turn is refused, and its rank named", "[relay]") {
  struct Case {
    const char* name;
    RelayMessage said;
    const char* word;
  };
  const auto tail = [](std::uint32_t channel, std::uint64_t number) {
    return RelayMessage{.channel = channel, .number = number, .flag = 3, .bytes = 4096};
  };
  const Case one = GENERATE_COPY(values<Case>({
      {"a channel too many", tail(3, 1), "channel 3 of 3"},
      {"the second before the first", tail(0, 2), "out of order: 1 is next"},
      {"the one before the first", tail(0, 0), "out of order: 1 is next"},
  }));
  INFO(one.name);
  Network network;
  RelayPair pair(Kind::rdma, all_lent());
  // A relay's peer that says what it likes.
  const transport::FifoShape fifo = DeviceRelay::fifo_shape(shape);
  Link there = open_link(pair.other, pair.near, fifo),
       back = open_link(pair.near, pair.other, fifo);
  REQUIRE(there.status.ok());
  REQUIRE(back.status.ok());
  DeviceRelay relay(5, shape, pair.halves[0].link, std::move(there.sender),
                    std::move(back.receiver));
  back.receiver = nullptr;
  const auto turn = [&](const auto& is_over) {
    Status status;
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    while (status.ok() && !is_over() && SystemClock::read() < end_ns) {
      bool moved = false;
      (void)back.sender->progress();
      status = relay.advance(moved);
    }
    return status;
  };
  const auto& grant = back.sender->fifo().control->receiver_grant;
  CHECK(turn([&] { return grant.sequence.load() != 0; }).ok());
  // It has to be joined with a peer that lends nothing.
  there.receiver->carrier()->lend({}, 1);
  CHECK(turn([&] {
          (void)there.receiver->progress();
          return relay.ready();
        }).ok());
  transport::SlotWriter writer(back.sender->fifo());
  transport::LentParts& parts = lent_parts(writer.view(), writer.tail());
  parts = {};
  (void)parts.add({writer.place(), 0, one.said.bytes});
  writer.commit(one.said.bytes, pushed_flag(one.said), DeliveryMode::push);
  const Status error = turn([] { return false; });
  INFO(error.message());
  CHECK(error.code() == Code::RemoteError);
  CHECK(error.culprits() == std::vector<int>{5});
  CHECK(error.message().find(one.word) != std::string::npos);
}

}  // namespace device_relay_lent_test
