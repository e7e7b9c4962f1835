// rdma over several ports: long messages are spread over them, and the loss of one loses nothing.
#include "tests/support/catch.h"
#include "tests/support/transports/rdma_pair.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace rdma_rails_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

TEST_CASE("long messages are spread over ports by their rates", "[rdma]") {
  FakeVerbsOptions machine = two_nics();
  machine.devices[1].ports[0].width = 16;  // 2 lanes of 4
  Network network(machine);
  JoinedPair pair({4, 2, 768 << 10});
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(768 << 10, 0);
  CHECK(pair.arrives(768 << 10, 0));
  CHECK(network.fake.bytes_by("fake0") / 1024 == 512);
  CHECK(network.fake.bytes_by("fake1") / 1024 == 255);
}

TEST_CASE("with two ports every failure of a completion or a post is made good", "[rdma]") {
  const int pairs = GENERATE(1, 3);
  for (const std::string_view call : {"", "post_send"})
    for (int k = 1;; ++k) {
      CAPTURE(call, k, pairs);
      Network network(two_nics(), {.qps_per_connection = pairs});
      if (call.empty())
        network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, k);
      else
        network.fake.fail_call(call, k);
      CHECK(text_of(live_through()) == "");
      CHECK(network.fake.live() == "");
      CHECK(network.fake.unexpected() == 0);
      if ((call.empty() ? network.fake.completions() : network.fake.calls(call)) < k) break;
    }
}

TEST_CASE("with two ports every call's failure is an error or harmless", "[rdma]") {
  for (const std::string_view call : fallible_verbs())
    for (int k = 1;; ++k) {
      CAPTURE(call, k);
      Network network(two_nics());
      network.fake.fail_call(call, k);
      const Status status = live_through();
      CHECK(network.fake.live() == "");
      CHECK(status.code() != Code::InternalError);
      if (network.fake.calls(call) < k) break;
    }
}

TEST_CASE("after the loss of a port a second failure is an error or harmless", "[rdma]") {
  int failures = 0;
  for (const std::string_view call : {"post_send", "post_recv", "poll_cq", "modify_qp"})
    for (const int first : {1, 2, 4, 7, 11})
      for (int k = 1; k < 200; k += 1 + k / 16) {
        CAPTURE(call, first, k);
        Network network(two_nics());
        network.fake.fail_completion(IBV_WC_RETRY_EXC_ERR, first);
        network.fake.fail_call(call, k);
        const Status status = live_through();
        failures += !status.ok();
        CHECK(status.code() != Code::InternalError);
        CHECK(network.fake.live() == "");
      }
  CHECK(failures > 0);
}

TEST_CASE("a connection that loses a port goes on over another, and loses no message", "[rdma]") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  const int pairs = GENERATE(1, 4);
  const char* const lost = GENERATE("fake0", "fake1");
  CAPTURE(seed, pairs, lost);
  FakeVerbsOptions machine = two_nics();
  machine.seed = seed;
  Network network(machine, {.qps_per_connection = pairs});
  constexpr std::uint64_t messages = 80;
  bool is_down = false;
  const auto sender = [&](End& end) {
    return send_stream(end, messages, 128 << 10, [&](std::uint64_t begun) {
      // Packets on their way are lost, and so are those that follow.
      if (begun >= 10 + 5 * seed && !std::exchange(is_down, true))
        network.fake.set_port(lost, 1, IBV_PORT_DOWN);
      network.fake.give_up();
    });
  };
  const auto receiver = [](End& end) { return receive_stream(end, messages, 128 << 10); };
  const PairResult result =
      run_pair(Kind::rdma, {.shape = {4, 2, 128 << 10}, .seed = seed}, sender, receiver);
  CHECK(result.sender == "");
  CHECK(result.receiver == "");
  CHECK(network.fake.unexpected() == 0);
  CHECK(network.fake.live() == "");
}

TEST_CASE("with another port one that goes down is given up by its state", "[rdma]") {
  Network network(two_nics());
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  pair.send(3000, 0);
  REQUIRE(pair.turn().ok());
  CHECK_FALSE(pair.link.sender->flushed());
  CHECK(pair.link.sender->look_at_peer(50 * ns_per_s, ns_per_s).ok());
  CHECK(pair.link.receiver->look_at_peer(50 * ns_per_s, ns_per_s).ok());
  CHECK(pair.arrives(3000, 0));
  for (std::uint64_t number = 1; number < 10; ++number) {
    pair.send(100, number);
    CHECK(pair.arrives(100, number));
  }
  // The last one's loss is an error.
  network.fake.break_pairs();
  const Status failed = pair.link.sender->progress();
  CHECK(failed.code() == Code::RemoteError);
  CHECK(contains(failed, "port fake1:1 to 10.0.0.2"));
}

namespace {

// The sender notices it, and asks the receiver, which does not look yet.
void lose_at_sender(Network& network, JoinedPair& pair, const char* device) {
  network.fake.set_port(device, 1, IBV_PORT_DOWN);
  REQUIRE(text_of(pair.link.sender->look_at_peer(50 * ns_per_s, ns_per_s)) == "");
  REQUIRE(text_of(pair.link.sender->progress()) == "");
}

}  // namespace

TEST_CASE("a sender that loses three of four ports while its receiver computes is not blamed",
          "[rdma]") {
  Network network(many_nics(4));
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  for (const char* const device : {"fake0", "fake1", "fake2"})
    lose_at_sender(network, pair, device);
  for (std::uint64_t number = 0; number < 6; ++number) {
    pair.send(3000, number);
    CHECK(pair.arrives(3000, number));
    CHECK(text_of(pair.link.status) == "");
  }
}

TEST_CASE("an old question that a lost port brings last costs no message", "[rdma]") {
  Network network(many_nics(4));
  constexpr std::uint32_t bytes = 64 << 10;
  JoinedPair pair({4, 2, bytes});
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.hold_arrivals("fake0");
  lose_at_sender(network, pair, "fake2");
  lose_at_sender(network, pair, "fake0");
  // It finds the question that came by fake0 when it gives that up.
  REQUIRE(text_of(pair.link.receiver->progress()) == "");
  network.fake.hold_arrivals("fake3");
  pair.send(bytes, 0);
  REQUIRE(text_of(pair.link.sender->progress()) == "");
  REQUIRE(text_of(pair.link.receiver->progress()) == "");
  CHECK_FALSE(pair.in.has_message());
  network.fake.show_arrivals("fake3");
  CHECK(pair.arrives(bytes, 0));
  CHECK(text_of(pair.link.status) == "");
}

TEST_CASE("a late completion is not taken for one of the message that was sent again", "[rdma]") {
  Network network(many_nics(3));
  constexpr std::uint32_t bytes = 96 << 10;
  JoinedPair pair({4, 2, bytes});
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.hold_arrivals("fake1");
  network.fake.set_port("fake2", 1, IBV_PORT_DOWN);
  pair.send(bytes, 0);
  REQUIRE(text_of(pair.link.sender->progress()) == "");
  network.fake.give_up();
  REQUIRE(text_of(pair.turn()) == "");
  // What is sent again over fake1 is on its way for long.
  network.fake.set_port("fake1", 1, IBV_PORT_DOWN);
  REQUIRE(text_of(pair.link.sender->progress()) == "");
  network.fake.show_arrivals("fake1");
  REQUIRE(text_of(pair.link.receiver->progress()) == "");
  CHECK_FALSE(pair.in.has_message());
  network.fake.set_port("fake1", 1, IBV_PORT_ACTIVE);
  CHECK(pair.arrives(bytes, 0));
  CHECK(text_of(pair.link.status) == "");
}

namespace {

// A message of two pieces that the receiver's NICs have acknowledged, one of which completes it
// when the test says so.
struct LateArrival {
  static constexpr std::uint32_t bytes = 96 << 10;
  Network network{many_nics(3)};
  JoinedPair pair{{4, 2, bytes}};

  LateArrival() {
    REQUIRE(text_of(pair.link.status) == "");
    network.fake.hold_arrivals("fake1");
    pair.send(bytes, 0);
    REQUIRE(text_of(pair.turn()) == "");
    REQUIRE(text_of(pair.link.sender->progress()) == "");
    REQUIRE(pair.link.sender->flushed());
    REQUIRE_FALSE(pair.in.has_message());
  }
  void goes_on() {
    network.fake.show_arrivals("fake1");
    CHECK(pair.arrives(bytes, 0));
    CHECK(text_of(pair.link.status) == "");
  }
};

}  // namespace

TEST_CASE("a receiver that is asked about a lost port waits for what its NICs have acknowledged",
          "[rdma]") {
  LateArrival late;
  const char* const lost = GENERATE("fake1", "fake2");
  lose_at_sender(late.network, late.pair, lost);
  REQUIRE(text_of(late.pair.turn()) == "");
  REQUIRE(text_of(late.pair.turn()) == "");
  late.goes_on();
  late.pair.send(LateArrival::bytes, 1);
  CHECK(late.pair.arrives(LateArrival::bytes, 1));
}

TEST_CASE("a connection that was closed is at its end when all its messages have come", "[rdma]") {
  LateArrival late;
  late.pair.link.sender.reset();
  REQUIRE(text_of(late.pair.link.receiver->progress()) == "");
  CHECK_FALSE(late.pair.link.receiver->at_end());
  late.network.fake.show_arrivals("fake1");
  REQUIRE(text_of(late.pair.link.receiver->progress()) == "");
  REQUIRE(late.pair.in.has_message());
  late.pair.in.release();
  CHECK(late.pair.link.receiver->at_end());
}

TEST_CASE("a NIC that never completes what it has acknowledged is named", "[rdma]") {
  LateArrival late;
  lose_at_sender(late.network, late.pair, "fake2");
  REQUIRE(text_of(late.pair.link.receiver->progress()) == "");
  std::this_thread::sleep_for(std::chrono::milliseconds(1010));
  CHECK(contains(late.pair.link.receiver->progress(),
                 "message 0 has been acknowledged, says its sender, and no NIC of this process has "
                 "completed it for 1 s"));
}

TEST_CASE("a receiver that loses a port takes all that the port has acknowledged", "[rdma]") {
  LateArrival late;
  late.network.fake.set_port("fake1", 1, IBV_PORT_DOWN);
  REQUIRE(text_of(late.pair.link.receiver->look_at_peer(50 * ns_per_s, ns_per_s)) == "");
  CHECK(late.pair.arrives(LateArrival::bytes, 0));
  CHECK(text_of(late.pair.link.status) == "");
}

TEST_CASE("an answer is of the round of its question, though newer ones come meanwhile", "[rdma]") {
  Network network(many_nics(4));
  constexpr std::uint32_t bytes = 64 << 10;
  JoinedPair pair({4, 2, bytes});
  REQUIRE(text_of(pair.link.status) == "");
  lose_at_sender(network, pair, "fake2");
  network.fake.at_stop([&] {
    lose_at_sender(network, pair, "fake3");
    network.fake.hold_last_arrival("fake0");  // of two questions
  });
  for (int turn = 0; turn < 2; ++turn) REQUIRE(text_of(pair.link.receiver->progress()) == "");
  network.fake.hold_arrivals("fake1");
  pair.send(bytes, 0);
  REQUIRE(text_of(pair.turn()) == "");
  network.fake.show_arrivals("fake0");
  REQUIRE(text_of(pair.link.receiver->progress()) == "");
  network.fake.show_arrivals("fake1");
  CHECK(pair.arrives(bytes, 0));
  CHECK(text_of(pair.link.status) == "");
}

}  // namespace rdma_rails_test
