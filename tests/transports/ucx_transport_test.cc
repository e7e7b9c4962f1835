// ucx over a fake: each call of UCX that fails, connections that are lost, how many messages go
// before the receiver has released one, and memory that is lent.
#include "lib/transport/carrier.h"
#include "lib/transport/endpoint.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "tests/support/transports/ucx_network.h"
#include "tests/support/transports/ucx_stranger.h"
#include "transports/ucx/ucx.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ucx_transport_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

struct UcxPair {
  explicit UcxPair(const FifoShape& shape = ucx_shape)
      : link(open_link(receiving, sending, shape)) {
    if (!link.status.ok()) return;
    out = SlotWriter(link.sender->fifo());
    in = SlotReader(link.receiver->fifo());
  }
  Side receiving{Kind::ucx}, sending{Kind::ucx};
  Link link;
  SlotWriter out;
  SlotReader in;

  void send(std::uint32_t bytes, std::uint64_t number) {
    fill(out.place(), bytes, number);
    out.commit(bytes, message_flag(number + 1, 1), DeliveryMode::staged);
  }
  bool arrives(std::uint32_t bytes, std::uint64_t number) {
    if (!pump(link, [&] { return in.has_message(); })) return false;
    const bool good = in.note().bytes == bytes && in.note().flag == message_flag(number + 1, 1) &&
                      is_filled(in.place(), bytes, number);
    in.release();
    return good;
  }
  // How many go while nobody reads.
  int send_all(std::uint32_t bytes, int most) {
    int sent = 0;
    const auto has_left = [&] { return link.sender->flushed(); };
    for (; sent < most; ++sent) {
      if (!out.has_credit()) return sent;
      send(bytes, static_cast<std::uint64_t>(sent));
      for (int i = 0; i < 20 && !has_left(); ++i) {
        REQUIRE(link.sender->progress().ok());
        REQUIRE(link.receiver->progress().ok());
      }
      if (!has_left()) return sent;
    }
    return sent;
  }
};

std::string text_of(const Status& status) { return std::string(status.message()); }

// Opens a link, moves messages of all kinds over it, looks and sleeps, and closes it.
Status live() {
  UcxPair pair;
  GYRE_TRY(pair.link.status);
  std::uint64_t number = 0;
  for (const std::uint32_t bytes : {0U, 8U, 256U, 257U, 8U << 10, 70'000U, 128U << 10, 5U, 5U}) {
    pair.send(bytes, number);
    if (!pair.arrives(bytes, number)) {
      GYRE_TRY(pair.link.status);
      return internal_error("a message came wrong");
    }
    ++number;
    WaitSet set;
    for (const auto& end : {pair.link.sender.get(), pair.link.receiver.get()}) {
      end->arm(set);
      end->disarm();
      GYRE_TRY(end->look_at_peer(static_cast<std::int64_t>(number) * ns_per_s, ns_per_s));
    }
  }
  return pump(pair.link, [&] { return pair.link.sender->flushed(); }) ? Status() : pair.link.status;
}

}  // namespace

TEST_CASE("each call of UCX that fails is an error, or does no harm", "[ucx]") {
  const std::string symbol(GENERATE(from_range(fallible_ucp())));
  const bool is_slow = GENERATE(false, true);
  CAPTURE(symbol, is_slow);
  int failures = 0;
  for (int at = 1;; ++at) {
    CAPTURE(at);
    UcxNetwork network({.failing = symbol, .failing_at = at, .is_slow = is_slow});
    const Status status = live();
    CHECK(network.fake.open_objects() == 0);
    if (network.fake.calls_of(symbol) < at) {
      CHECK(text_of(status).empty());
      break;
    }
    if (status.ok()) continue;
    ++failures;
    CHECK_THAT(text_of(status), has_text("Input/output error") || has_text("there is no ucx"));
  }
  const bool is_needed =
      symbol != "ucp_config_modify" && symbol != "ucp_ep_close_nbx" && symbol != "ucp_worker_arm";
  // Fast requests have completed before anybody asks.
  const bool is_met = is_slow || symbol != "ucp_request_check_status";
  if (is_needed && is_met) CHECK(failures > 0);
}

TEST_CASE("an end whose connection is lost names the rank and the way", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  // A short message is sent before anybody has heard of it.
  const bool is_short = GENERATE(true, false);
  pair.send(is_short ? 8 : 100'000, 0);
  network.fake.cut_all();
  const auto fails = [](Connection& end) {
    for (int i = 0; i < 100; ++i)
      if (Status status = end.progress(); !status.ok()) return status;
    return Status();
  };
  const Status sender = fails(*pair.link.sender);
  CHECK(text_of(sender) ==
        fmt::format("ucx to rank 0 (fake/device, other/device): {}: Endpoint timeout",
                    is_short ? "ucp_am_send_nbx" : "UCX lost the connection"));
  CHECK(sender.code() == Code::RemoteError);
  CHECK(sender.culprits() == std::vector<int>{0});
  const Status receiver = fails(*pair.link.receiver);
  CHECK_THAT(text_of(receiver), has_text("ucx from rank 1 (fake/device, other/device): "));
  CHECK(receiver.culprits() == std::vector<int>{1});
}

TEST_CASE("a receiver that has all misses no connection", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  pair.send(70'000, 0);
  REQUIRE(pump(pair.link, [&] { return pair.link.sender->flushed(); }));
  pair.link.sender.reset();
  CHECK_FALSE(pair.link.receiver->at_end());
  REQUIRE(pair.link.receiver->progress().ok());
  network.fake.cut_all();
  REQUIRE(pair.link.receiver->progress().ok());
  REQUIRE(pair.in.has_message());
  CHECK(is_filled(pair.in.place(), 70'000, 0));
  pair.in.release();
  CHECK(pair.link.receiver->progress().ok());
  CHECK(pair.link.receiver->at_end());
  WaitSet set;
  pair.link.receiver->arm(set);
  CHECK_THAT(text_of(pair.link.receiver->progress()), has_text("the peer closed the connection"));
}

TEST_CASE("a link that ends while its receiver goes to sleep is no failure yet", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  pair.send(8, 0);
  REQUIRE(pair.arrives(8, 0));
  pair.link.sender.reset();
  CHECK_FALSE(pair.link.receiver->at_end());
  WaitSet set;
  pair.link.receiver->arm(set);
  CHECK(pair.link.receiver->at_end());
  CHECK(pair.link.receiver->progress().ok());
  // Who sleeps all the same waits for what will not come.
  pair.link.receiver->arm(set);
  CHECK_THAT(text_of(pair.link.receiver->progress()), has_text("the peer closed the connection"));
}

TEST_CASE("a sender whose receiver has got all and gone fails at the next message", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  pair.send(70'000, 0);
  REQUIRE(pump(pair.link, [&] { return pair.in.has_message(); }));
  pair.link.receiver.reset();
  network.fake.cut_all();
  CHECK(pair.link.sender->progress().ok());
  CHECK(pair.link.sender->flushed());
  pair.send(8, 1);
  CHECK_THAT(text_of(pair.link.sender->progress()), has_text("the peer closed the connection"));
}

TEST_CASE("long messages fill the slots, and short ones go beyond", "[ucx]") {
  const bool is_slow = GENERATE(false, true);
  UcxNetwork network({.is_slow = is_slow});
  const auto check = [](std::uint32_t bytes, int expected) {
    CAPTURE(bytes);
    UcxPair pair;
    REQUIRE(pair.link.status.ok());
    CHECK(pair.send_all(bytes, 200) == expected);
    const FifoControl& control = *pair.link.receiver->fifo().control;
    CHECK(control.tail.value == 4);
    for (int i = 0; i < expected; ++i) CHECK(pair.arrives(bytes, static_cast<std::uint64_t>(i)));
  };
  check(128 << 10, 4);
  check((8 << 10) + 65, 4);
  check((8 << 10) + 64, 64);
  check(0, 64);
}

TEST_CASE("short messages need one credit for many, long ones one for two", "[ucx]") {
  UcxNetwork network;
  const auto notices_for = [&](std::uint32_t bytes) {
    UcxPair pair;
    REQUIRE(pair.link.status.ok());
    const int before = network.fake.calls_of("ucp_am_send_nbx");
    for (std::uint64_t i = 0; i < 320; ++i) {
      pair.send(bytes, i);
      REQUIRE(pair.arrives(bytes, i));
      REQUIRE(pair.link.receiver->progress().ok());
    }
    return network.fake.calls_of("ucp_am_send_nbx") - before;
  };
  CHECK(notices_for(8) == 320 + 320 / 32);
  // With a notice behind 64 KiB.
  CHECK(notices_for(8000) == 320 + 320 / 32 + 320 / 9);
  CHECK(notices_for(9000) == 320 + 320 / 2);
}

TEST_CASE("a short message leaves without a look at what UCX has", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  const auto turns_for = [&](std::uint32_t bytes, std::uint64_t number) {
    const int before = network.fake.calls_of("ucp_worker_progress");
    pair.send(bytes, number);
    REQUIRE(pair.link.sender->progress().ok());
    const int turns = network.fake.calls_of("ucp_worker_progress") - before;
    REQUIRE(pair.arrives(bytes, number));
    return turns;
  };
  for (std::uint64_t number = 0; number < 10; ++number) CHECK(turns_for(8, number) == 0);
  CHECK(turns_for(100'000, 10) == 1);
}

TEST_CASE("links of one engine ask UCX once in a turn of all", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  std::vector<Link> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(open_link(pair.receiving, pair.sending, ucx_shape));
    REQUIRE(others.back().status.ok());
  }
  const auto turn = [&] {
    REQUIRE(pair.link.receiver->progress().ok());
    for (const Link& link : others) REQUIRE(link.receiver->progress().ok());
  };
  turn();
  const int before = network.fake.calls_of("ucp_worker_progress");
  for (int i = 0; i < 10; ++i) turn();
  CHECK(network.fake.calls_of("ucp_worker_progress") == before + 10);
  // A link that is looked at alone asks each time.
  for (int i = 0; i < 10; ++i) REQUIRE(pair.link.receiver->progress().ok());
  CHECK(network.fake.calls_of("ucp_worker_progress") >= before + 19);
}

TEST_CASE("a receiver is ready once its first credit has left", "[ucx]") {
  UcxNetwork network({.is_slow = true});
  UnmovedUcxLink link;
  REQUIRE(link.sender->progress().ok());
  // The hello has come, and the credit is with UCX.
  REQUIRE(link.receiver->progress().ok());
  CHECK_FALSE(link.receiver->ready());
  REQUIRE(link.receiver->progress().ok());
  CHECK(link.receiver->ready());
}

TEST_CASE("messages are in order, whichever completes first", "[ucx]") {
  UcxNetwork network({.is_slow = true});
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  pair.send(100'000, 0);
  pair.send(8, 1);
  pair.send(9'000, 2);
  CHECK(pair.arrives(100'000, 0));
  CHECK(pair.arrives(8, 1));
  CHECK(pair.arrives(9'000, 2));
}

TEST_CASE("where UCX copies, a message leaves in packets", "[ucx]") {
  const bool is_slow = GENERATE(false, true);
  UcxNetwork network({.is_slow = is_slow, .ways = {"tcp/eth0", "tcp/eth1"}});
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  const auto sends_for = [&](std::uint32_t bytes, std::uint64_t number) {
    const int before = network.fake.calls_of("ucp_am_send_nbx");
    pair.send(bytes, number);
    REQUIRE(pair.arrives(bytes, number));
    REQUIRE(pair.link.receiver->progress().ok());
    REQUIRE(pump(pair.link, [&] { return pair.link.sender->flushed(); }));
    return network.fake.calls_of("ucp_am_send_nbx") - before;
  };
  // With a credit for two.
  CHECK(sends_for(63 << 10, 0) == 1);
  CHECK(sends_for((63 << 10) + 1, 1) == 2 + 1);
  CHECK(sends_for(128 << 10, 2) == 3);
  CHECK(network.fake.calls_of("ucp_am_recv_data_nbx") == 0);
}

TEST_CASE("packets of shared memory are smaller, and other ways get whole messages", "[ucx]") {
  const auto sends_for = [](std::vector<std::string> ways) {
    UcxNetwork network({.ways = std::move(ways)});
    UcxPair pair;
    REQUIRE(pair.link.status.ok());
    const int before = network.fake.calls_of("ucp_am_send_nbx");
    pair.send(128 << 10, 0);
    REQUIRE(pair.arrives(128 << 10, 0));
    REQUIRE(pump(pair.link, [&] { return pair.link.sender->flushed(); }));
    return network.fake.calls_of("ucp_am_send_nbx") - before;
  };
  // The last one shows that the short ones before have left.
  CHECK(sends_for({"posix/memory", "cma/memory"}) == 17 + 1);
  CHECK(sends_for({"tcp/eth0", "sysv/memory"}) == 17 + 1);
  CHECK(sends_for({"rc_mlx5/mlx5_0:1", "cma/memory"}) == 1);
  CHECK(sends_for({}) == 1);
}

TEST_CASE("parts of a message come in any order", "[ucx]") {
  UcxNetwork network;
  Side receiving(Kind::ucx), sending(Kind::ucx);
  const Listening listening = listen_at(receiving, sending);
  UcxStranger stranger(network.fake.table());
  stranger.aim_at(listening.endpoint, ucx_shape);
  stranger.say_hello();
  SlotReader in(listening.connection->fifo());
  std::vector<std::byte> payload(9000);
  fill(payload.data(), payload.size(), 4);
  for (const std::uint32_t offset : {8192U, 0U, 4096U}) {
    CHECK_FALSE(in.has_message());
    UcpNotice notice = stranger.notice(UcpNoticeKind::message);
    notice.offset = offset;
    notice.whole = 9000;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(payload.data()) + offset;
    stranger.send_as_is(notice, {from, from + std::min<std::size_t>(4096, 9000 - offset)});
    REQUIRE(listening.connection->progress().ok());
  }
  REQUIRE(in.has_message());
  CHECK(in.note().bytes == 9000);
  CHECK(is_filled(in.place(), 9000, 4));
}

TEST_CASE("a burst of short messages has left once what comes behind it has", "[ucx]") {
  UcxNetwork network;
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  const auto sent_for = [&](std::uint32_t bytes, std::uint64_t number) {
    const int before = network.fake.calls_of("ucp_am_send_nbx");
    pair.send(bytes, number);
    REQUIRE(pump(pair.link, [&] { return pair.link.sender->flushed(); }));
    REQUIRE(pair.arrives(bytes, number));
    return network.fake.calls_of("ucp_am_send_nbx") - before;
  };
  std::uint64_t number = 0;
  // 64 KiB with what stands before each, and then a notice behind the next one.
  const auto burst = [&] {
    for (int i = 0; i < 8; ++i) CHECK(sent_for(8000, number++) == 1);
    CHECK(sent_for(8000, number++) == 2);
  };
  burst();
  for (int i = 0; i < 5; ++i) CHECK(sent_for(8000, number++) == 1);
  CHECK(sent_for(8193, number++) == 1);  // UCX copies none of it: it needs no notice
  burst();
}

namespace {

// Of a process that is told that its peer announced this.
Reachability reach_of(loaded::SharedUcp* ucp, const std::string& announced,
                      bool is_encrypted = false) {
  const trust::ProcessIdentity self;
  trust::TicketBook tickets;
  const auto transport = make_ucx_transport({.self = self,
                                             .tickets = tickets,
                                             .tcp_encrypted = is_encrypted,
                                             .announced = [&](const auto&) { return announced; },
                                             .ucp = ucp});
  return transport->reach(self);
}

}  // namespace

TEST_CASE("ucx says whom it reaches, and why not", "[ucx]") {
  UcxNetwork network;
  loaded::SharedUcp* const ucp = pair_ucp();
  CHECK(reach_of(ucp, "ucx=1.13").reachable);
  CHECK(reach_of(ucp, "rdma=ib/1,roce4;ucx=1.13").reason == "by UCX 1.13.1");
  CHECK(reach_of(ucp, "").reason == "its process has no UCX");
  CHECK(reach_of(ucp, "rdma=roce4").reason == "its process has no UCX");
  CHECK(reach_of(ucp, "ucx=1.22").reason ==
        "its process has UCX 1.22, and this one 1.13: install one release");
  CHECK(reach_of(nullptr, "ucx=1.13").reason == "nobody loads UCX for it");
  CHECK(reach_of(ucp, "ucx=1.13", true).reason ==
        "GYRE_TCP_SECURITY=tls asks for encryption, and UCX has none");
}

TEST_CASE("UCX asks a silent peer twice within the limit of silence", "[ucx]") {
  const bool is_old = GENERATE(true, false);
  UcxNetwork network({.minor = is_old ? 16U : 17U});
  const Side side(Kind::ucx);
  // A setting of a transport has another name in old releases.
  const std::vector<std::string> expected = {
      "KEEPALIVE_INTERVAL=5000ms", is_old ? "CONN_NB=y" : "TCP_CONN_NB=y", "ZCOPY_THRESH=8k"};
  CHECK(network.fake.changes() == expected);
}

TEST_CASE("UCX is told of TCP only where the user lets it use that", "[ucx]") {
  const auto [chosen, may] = GENERATE(table<const char*, bool>(
      {{"posix,cma", false}, {"rc,tcp", true}, {"all", true}, {"^tcp", false}, {"^rc", true}}));
  CAPTURE(chosen);
  const char* const before = std::getenv("UCX_TLS");
  const std::string kept = before != nullptr ? before : "";
  REQUIRE(setenv("UCX_TLS", chosen, 1) == 0);
  UcxNetwork network;
  const Side side(Kind::ucx);
  if (before != nullptr)
    setenv("UCX_TLS", kept.c_str(), 1);
  else
    unsetenv("UCX_TLS");
  CHECK((std::ranges::count(network.fake.changes(), "CONN_NB=y") == 1) == may);
}

TEST_CASE("an address that fits no endpoint is an error that says what to do", "[ucx]") {
  UcxNetwork network({.address_bytes = 3000});
  Side receiving(Kind::ucx), sending(Kind::ucx);
  const auto listening = receiving.transport->listen({.peer = 1, .direction = Direction::receive},
                                                     ucx_shape, sending.identity);
  REQUIRE_FALSE(listening.ok());
  CHECK(
      text_of(listening.status()) ==
      "UCX's address of this process has 3000 bytes, of which 1915 can be told: leave out devices "
      "by UCX_NET_DEVICES, or transports by UCX_TLS");
}

TEST_CASE("a long address travels in parts", "[ucx]") {
  UcxNetwork network({.is_threaded = GENERATE(false, true), .address_bytes = 1915});
  UcxPair pair;
  REQUIRE(pair.link.status.ok());
  pair.send(8, 0);
  CHECK(pair.arrives(8, 0));
}

TEST_CASE("who looks at a process that was killed learns of it", "[ucx]") {
  const Kind kind = GENERATE(Kind::ucx_shm, Kind::ucx_tcp);
  const bool receiver_dies = GENERATE(false, true);
  const std::vector<Kind> kinds = process_kinds();
  if (std::ranges::count(kinds, kind) == 0) return;  // there is no UCX here
  const auto die = [](End& end) -> std::string {
    if (!end.join() || !end.messages.await_word()) return "not joined";
    raise(SIGKILL);
    return "alive";
  };
  const auto look = [=](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    end.messages.post_word("now");
    GYRE_EXPECT(!end.messages.await().has_value());
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    Status status;
    while (status.ok() && SystemClock::read() < end_ns)
      status = end.connection->look_at_peer(SystemClock::read(), ns_per_s);
    GYRE_EXPECT(status.code() == Code::RemoteError);
    GYRE_EXPECT(status.culprits() == std::vector<int>{receiver_dies ? 0 : 1});
    return "";
  };
  const PairOptions options{.processes = true, .receiver_in_child = receiver_dies};
  const PairResult result =
      receiver_dies ? run_pair(kind, options, look, die) : run_pair(kind, options, die, look);
  CAPTURE(kind_name(kind));
  CHECK((receiver_dies ? result.sender : result.receiver) == "");
  CHECK((receiver_dies ? result.receiver : result.sender) == "its process ended without a word");
}

TEST_CASE("a send leaves from the memory that its caller lends", "[ucx]") {
  const bool is_slow = GENERATE(false, true);
  UcxNetwork network({.is_slow = is_slow});
  Side receiving(Kind::ucx), sending(Kind::ucx);
  auto listening = receiving.transport->listen(
      {.peer = 1, .direction = Direction::receive, .traffic = TrafficClass::point_to_point},
      ucx_shape, sending.identity);
  REQUIRE(listening.ok());
  auto connection = sending.transport->connect(
      {.peer = 0, .direction = Direction::send, .traffic = TrafficClass::point_to_point}, ucx_shape,
      listening->endpoint);
  REQUIRE(connection.ok());
  Link link{std::move(listening->connection), std::move(*connection), {}, {}};
  REQUIRE(pump(link, [&] { return link.sender->ready() && link.receiver->ready(); }));
  Carrier* const carrier = link.sender->carrier();
  REQUIRE(carrier != nullptr);
  CHECK(link.receiver->carrier() == nullptr);
  SlotWriter out(link.sender->fifo());
  SlotReader in(link.receiver->fifo());
  std::vector<std::byte> memory(100'000), expected(100'000);
  fill(memory.data(), memory.size(), 3);
  const auto send = [&](std::uint64_t head_bytes, std::uint64_t bytes) {
    const auto held = carrier->hold(memory.data(), memory.size());
    REQUIRE(held != nullptr);
    LentParts& parts = lent_parts(out.view(), out.tail());
    parts = {};
    fill(out.place(), head_bytes, 7);
    std::memcpy(expected.data(), out.place(), head_bytes);
    std::memcpy(expected.data() + head_bytes, memory.data(), bytes);
    if (head_bytes > 0) REQUIRE(parts.add({out.place(), 0, head_bytes}));
    REQUIRE(parts.add({memory.data(), head_bytes, bytes}));
    out.commit(static_cast<std::uint32_t>(head_bytes + bytes), message_flag(1, 1),
               DeliveryMode::pull);
    REQUIRE(pump(link, [&] { return in.has_message() && link.sender->flushed(); }));
    CHECK(in.note().bytes == head_bytes + bytes);
    CHECK(in.note().delivery == DeliveryMode::staged);
    CHECK(std::memcmp(in.place(), expected.data(), head_bytes + bytes) == 0);
    in.release();
  };
  send(0, 100'000);
  send(32, 90'000);
  send(0, 4096);
  send(0, 100'000);
  // Parts that do not make up the message are an error of this process.
  LentParts& parts = lent_parts(out.view(), out.tail());
  parts = {};
  REQUIRE(parts.add({memory.data(), 0, 10}));
  out.commit(11, message_flag(1, 1), DeliveryMode::pull);
  const Status wrong = link.sender->progress();
  CHECK(wrong.code() == Code::InternalError);
}

TEST_CASE("UCX reads nothing that was lent once a link is cut off", "[ucx]") {
  UcxNetwork network({.is_slow = GENERATE(false, true)});
  Side receiving(Kind::ucx), sending(Kind::ucx);
  auto listening = receiving.transport->listen(
      {.peer = 1, .direction = Direction::receive, .traffic = TrafficClass::point_to_point},
      ucx_shape, sending.identity);
  REQUIRE(listening.ok());
  auto connection = sending.transport->connect(
      {.peer = 0, .direction = Direction::send, .traffic = TrafficClass::point_to_point}, ucx_shape,
      listening->endpoint);
  REQUIRE(connection.ok());
  Link link{std::move(listening->connection), std::move(*connection), {}, {}};
  REQUIRE(pump(link, [&] { return link.sender->ready() && link.receiver->ready(); }));
  auto memory = std::make_unique<std::vector<std::byte>>(100'000);
  SlotWriter out(link.sender->fifo());
  LentParts& parts = lent_parts(out.view(), out.tail());
  parts = {};
  REQUIRE(parts.add({memory->data(), 0, memory->size()}));
  out.commit(100'000, message_flag(1, 1), DeliveryMode::pull);
  REQUIRE(link.sender->progress().ok());
  link.sender->carrier()->cut_off();
  memory.reset();
  const Status sender = link.sender->progress();
  CHECK(sender.code() == Code::RemoteError);
  CHECK(sender.culprits() == std::vector<int>{0});
  for (int i = 0; i < 5; ++i) (void)link.receiver->progress();
  CHECK_FALSE(SlotReader(link.receiver->fifo()).has_message());
}

}  // namespace ucx_transport_test
