// rdma over fake devices: order and bytes with late and split messages, each failure of a call or a
// completion, a port that goes down, keys that are withdrawn.
#include "transports/rdma/rdma.h"

#include "lib/transport/carrier.h"
#include "tests/support/catch.h"
#include "tests/support/transports/post_office.h"
#include "tests/support/transports/rdma_pair.h"
#include "transports/rdma/address.h"

#include <string>
#include <sys/resource.h>
#include <vector>

namespace rdma_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

TEST_CASE("messages arrive in order over several queue pairs that are late", "[rdma]") {
  const std::uint64_t seed = GENERATE(1, 2);
  const int pairs = GENERATE(1, 4, 16);
  const std::uint32_t max_message = GENERATE(1U << 30, 4096U);
  CAPTURE(seed, pairs, max_message);
  FakeVerbsOptions machine{.seed = seed};
  machine.devices[0].ports[0].max_message = max_message;
  const Network network(machine, {.qps_per_connection = pairs});
  const auto sender = [](End& end) { return send_stream(end, 40, 256 << 10); };
  const auto receiver = [](End& end) { return receive_stream(end, 40, 256 << 10); };
  const PairResult result =
      run_pair(Kind::rdma, {.shape = {4, 2, 256 << 10}, .seed = seed}, sender, receiver);
  CHECK(result.sender == "");
  CHECK(result.receiver == "");
  CHECK(network.fake.unexpected() == 0);
  CHECK(network.fake.live() == "");
}

TEST_CASE("a device with short queues has fewer messages on their way", "[rdma]") {
  FakeVerbsOptions machine;
  machine.devices[0].max_requests = 28;
  machine.devices[0].inline_bytes = 0;
  const Network network(machine);
  CHECK(text_of(live_through()) == "");
  machine.devices[0].max_requests = 21;
  const Network shorter(machine);
  CHECK(contains(live_through(), "the queues of RDMA device fake0 are too short"));
}

TEST_CASE("every call's failure is an error or harmless, and leaves nothing behind", "[rdma]") {
  const int pairs = GENERATE(1, 4);
  const RdmaOptions options{.qps_per_connection = pairs};
  for (const std::string_view call : fallible_verbs()) {
    int failures = 0;
    for (int k = 1;; ++k) {
      CAPTURE(call, k, pairs);
      Network network({}, options);
      network.fake.fail_call(call, k);
      const Status status = live_through();
      CHECK(network.fake.live() == "");
      CHECK(status.code() != Code::InternalError);
      failures += !status.ok();
      if (network.fake.calls(call) < k) break;
    }
    CAPTURE(call);
    // Events are hints: without one the thread looks again by itself.
    const bool may_fail = call == "get_cq_event" || call == "get_async_event";
    CHECK((failures > 0) != may_fail);
  }
}

TEST_CASE("every completion's failure names its status and what to do", "[rdma]") {
  const int pairs = GENERATE(1, 4);
  struct Case {
    ibv_wc_status status;
    Code code;
    const char *name, *remedy;
  };
  for (const Case& one : std::initializer_list<Case>{
           {IBV_WC_RETRY_EXC_ERR, Code::RemoteError, "IBV_WC_RETRY_EXC_ERR", "PFC"},
           {IBV_WC_REM_ACCESS_ERR, Code::RemoteError, "IBV_WC_REM_ACCESS_ERR", "withdrawn"},
           {IBV_WC_LOC_LEN_ERR, Code::SystemError, "IBV_WC_LOC_LEN_ERR", "MTU"},
           {IBV_WC_WR_FLUSH_ERR, Code::RemoteError, "IBV_WC_WR_FLUSH_ERR", "error state"}}) {
    int named = 0;
    for (int k = 1;; ++k) {
      CAPTURE(one.name, k, pairs);
      Network network({}, {.qps_per_connection = pairs});
      network.fake.fail_completion(one.status, k);
      const Status status = live_through();
      CHECK(network.fake.live() == "");
      if (network.fake.completions() < k) break;
      // Those of the closing come after the last look.
      if (status.ok()) continue;
      CHECK(contains(status, "queue pair 0x"));
      CHECK(contains(status, "10.0.0.1"));
      // The other end may notice first that this one's queue pair does not answer.
      if (!contains(status, one.name)) {
        CHECK((contains(status, "IBV_WC_RETRY_EXC_ERR") || contains(status, "IBV_WC_REM_OP_ERR")));
        continue;
      }
      ++named;
      CHECK(status.code() == one.code);
      CHECK(contains(status, one.remedy));
    }
    CHECK(named > 10);
  }
}

TEST_CASE("a port that goes down ends a wait within the limit, and is named", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  pair.send(100, 0);
  REQUIRE(pair.turn().ok());
  CHECK_FALSE(pair.link.sender->flushed());
  for (const auto& end : {pair.link.sender.get(), pair.link.receiver.get()}) {
    CHECK(end->look_at_peer(50 * ns_per_s, ns_per_s).ok());
    CHECK(end->look_at_peer(51 * ns_per_s, ns_per_s).ok());
    const Status silent = end->look_at_peer(51 * ns_per_s + 1, ns_per_s);
    CHECK(silent.code() == Code::RemoteError);
    CHECK(contains(silent, "port fake0:1 is down"));
    CHECK(silent.culprits().size() == 1);
  }
}

TEST_CASE("a port that comes back in time loses nothing", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  pair.send(3000, 0);
  REQUIRE(pair.turn().ok());
  CHECK(pair.link.sender->look_at_peer(50 * ns_per_s, ns_per_s).ok());
  network.fake.set_port("fake0", 1, IBV_PORT_ACTIVE);
  CHECK(pair.arrives(3000, 0));
  CHECK(pair.link.sender->look_at_peer(52 * ns_per_s, ns_per_s).ok());
}

TEST_CASE("a peer that is asked after long silence is not taken for dead", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  for (const std::int64_t at : {1, 100, 101, 500})
    for (const auto& end : {pair.link.sender.get(), pair.link.receiver.get()})
      CHECK(end->look_at_peer(at * ns_per_s, ns_per_s).ok());
}

TEST_CASE("the last retry is an error that names the port's state", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  pair.send(100, 0);
  REQUIRE(pair.turn().ok());
  network.fake.give_up();
  const Status failed = pair.link.sender->progress();
  CHECK(failed.code() == Code::RemoteError);
  CHECK(failed.culprits() == std::vector<int>{0});
  CHECK(contains(failed, "IBV_WC_RETRY_EXC_ERR"));
  CHECK(contains(failed, "port fake0:1 is down"));
}

TEST_CASE("a queue pair in error, a key withdrawn and a full completion queue are errors",
          "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  SECTION("pairs") {
    network.fake.break_pairs();
    CHECK(contains(pair.link.sender->progress(), "IBV_WC_WR_FLUSH_ERR"));
    CHECK(contains(pair.link.receiver->progress(), "IBV_WC_WR_FLUSH_ERR"));
  }
  SECTION("key") {
    network.fake.revoke_keys();
    pair.send(100, 0);
    (void)pair.link.sender->progress();
    CHECK(contains(pair.link.sender->progress(), "IBV_WC_REM_ACCESS_ERR"));
    CHECK(contains(pair.link.receiver->progress(), "IBV_WC_WR_FLUSH_ERR"));
  }
  SECTION("completions") {
    network.fake.fail_call("poll_cq", 1);
    const Status failed = pair.link.sender->progress();
    CHECK(failed.code() == Code::SystemError);
    CHECK(contains(failed, "completion queue"));
  }
}

TEST_CASE("a completion queue that overflows is this process's failure", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(3000, 0);
  network.fake.overrun_queues();
  for (const auto& end : {pair.link.sender.get(), pair.link.receiver.get()}) {
    const Status lost = end->look_at_peer(50 * ns_per_s, ns_per_s);
    CHECK(lost.code() == Code::SystemError);
    CHECK(lost.culprits().empty());
    CHECK(contains(lost, "the completion queue of port fake0:1 has overflowed"));
  }
}

TEST_CASE("a receiver that ends tells its sender what it had", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(100, 0);
  REQUIRE(pair.arrives(100, 0));
  pair.link.receiver.reset();
  CHECK(pair.link.sender->progress().ok());
  CHECK(pair.link.sender->flushed());
  pair.send(100, 1);
  const Status failed = pair.link.sender->progress();
  CHECK(failed.code() == Code::RemoteError);
  CHECK(contains(failed, "the peer closed the connection"));
}

TEST_CASE("a receiver that waits for more than a sender had is told that it closed", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(100, 0);
  REQUIRE(pair.arrives(100, 0));
  REQUIRE(pump(pair.link, [&] { return pair.link.sender->flushed(); }));
  pair.link.sender.reset();
  CHECK(pair.link.receiver->progress().ok());
  CHECK(pair.link.receiver->at_end());
  WaitSet set;
  pair.link.receiver->arm(set);
  CHECK(contains(pair.link.receiver->progress(), "the peer closed the connection"));
}

TEST_CASE("a receiver that ends before it has looked takes nothing back", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  pair.send(100, 0);
  REQUIRE(pair.link.sender->progress().ok());
  REQUIRE(pair.link.sender->progress().ok());
  REQUIRE(pair.link.sender->flushed());  // the NIC has it, the receiver does not know of it
  pair.link.receiver.reset();
  CHECK(pair.link.sender->progress().ok());
  CHECK(pair.link.sender->flushed());
}

TEST_CASE("a receiver that ends before the sender has joined says so", "[rdma]") {
  Network network;
  Side receiving(Kind::rdma), sending(Kind::rdma);
  auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                               small_shape, sending.identity);
  REQUIRE(listening.ok());
  auto sender = sending.transport->connect({.peer = 0, .direction = Direction::send}, small_shape,
                                           listening->endpoint);
  REQUIRE(sender.ok());
  CHECK((*sender)->progress().ok());
  listening->connection.reset();
  CHECK(contains((*sender)->progress(), "the receiver has given the connection up"));
}

TEST_CASE("a message that does not fit, or that nobody holds, is this program's mistake",
          "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  std::vector<std::byte> plain(8192);
  SECTION("fit") {
    pair.out.commit(8192, message_flag(1, 1), DeliveryMode::staged);
    const Status failed = pair.link.sender->progress();
    CHECK(failed.code() == Code::InternalError);
    CHECK(contains(failed, "message 0 of 8192 bytes with delivery"));
  }
  SECTION("hold") {
    LentParts& parts = lent_parts(pair.link.sender->fifo(), pair.out.tail());
    REQUIRE(parts.add({plain.data(), 0, 4096}));
    pair.out.commit(4096, message_flag(1, 1), DeliveryMode::pull);
    const Status failed = pair.link.sender->progress();
    CHECK(failed.code() == Code::InternalError);
    CHECK(contains(failed, "nobody holds them"));
  }
}

TEST_CASE("what cannot be listened for is an error at once", "[rdma]") {
  Network network;
  Side side(Kind::rdma);
  const LinkKey key{.peer = 1, .direction = Direction::receive};
  const auto silent = make_rdma_transport({.self = side.identity,
                                           .tickets = side.tickets,
                                           .letters = post_office(),
                                           .announced = [](const auto&) { return std::string(); },
                                           .verbs = pair_verbs()});
  CHECK(contains(silent->listen(key, small_shape, side.identity).status(),
                 "rdma does not reach rank 1"));
  CHECK(contains(side.transport->listen(key, {3, 2, 4096}, side.identity).status(),
                 "no fifo can have 3 slots"));
}

TEST_CASE("where registering fails, a limit on locked memory is named", "[rdma]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  Network network;
  const auto fail = [&](rlim_t most) {
    const rlimit lowered{.rlim_cur = most, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &lowered) == 0);
    network.fake.fail_call("reg_mr", 1);
    Status failed = live_through();
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &before) == 0);
    return failed;
  };
  CHECK(contains(fail(65536), "this process may lock 65536 bytes (RLIMIT_MEMLOCK)"));
  if (before.rlim_max == RLIM_INFINITY) CHECK_FALSE(contains(fail(RLIM_INFINITY), "RLIMIT"));
}

TEST_CASE("a device that has failed is named where its requests fail", "[rdma]") {
  Network network;
  JoinedPair pair;
  REQUIRE(text_of(pair.link.status) == "");
  network.fake.fail_device("fake0");
  network.fake.break_pairs();
  CHECK(contains(pair.link.sender->progress(), "device fake0 has failed"));
}

TEST_CASE("processes on different networks do not reach each other, and say why", "[rdma]") {
  Network network;
  Side own(Kind::rdma);
  const auto reach = [&](const std::string& announced, bool is_encrypted = false) {
    const auto transport = make_rdma_transport({.self = own.identity,
                                                .tickets = own.tickets,
                                                .tcp_encrypted = is_encrypted,
                                                .letters = post_office(),
                                                .announced = [&](const auto&) { return announced; },
                                                .verbs = pair_verbs()});
    const Reachability found = transport->reach(own.identity);
    return (found.reachable ? "" : "no: ") + found.reason;
  };
  CHECK(reach("rdma=roce4") == "by fake0:1 (RoCE v2, IPv4, 100 Gb/s)");
  CHECK(reach("") == "no: its process has no usable RDMA port");
  CHECK(reach("rdma=ib/fe80000000000000") ==
        "no: it is on other networks: rdma=ib/fe80000000000000; here: "
        "rdma=roce4,roce6,roce6-local");
  CHECK(reach("rdma=roce4", true) ==
        "no: GYRE_TCP_SECURITY=tls asks for encryption, and RDMA has none");
  network.fake.set_port("fake0", 1, IBV_PORT_DOWN);
  CHECK(reach("rdma=roce4") == "no: no RDMA port is usable (fake0:1: down)");
}

TEST_CASE("addresses and answers read as they were written, and no other way", "[rdma]") {
  RdmaAddress address{.network = RdmaNetwork::roce_ipv6, .mtu = IBV_MTU_4096, .lid = 7};
  address.window = 4;
  address.slots = {1, 2};
  address.notes = {3, 4};
  address.probed = {5, 6};
  for (std::uint32_t i = 0; i < max_queue_pairs; ++i) address.pairs.push_back({i, 0xffffff - i});
  address.place = std::string(100, 'h');
  const std::vector<std::uint8_t> bytes = encode(address);
  CHECK(bytes.size() <= 255);
  const auto copy = decode_rdma_address(bytes);
  REQUIRE(copy.has_value());
  CHECK(encode(*copy) == bytes);
  CHECK(copy->pairs == address.pairs);
  CHECK(copy->slots == address.slots);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(decode_rdma_address({bytes.data(), length}).has_value());
}

}  // namespace rdma_test
