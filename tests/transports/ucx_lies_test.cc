// Peers of ucx that lie, over a fake: strangers, senders and receivers.
#include "lib/base/clock.h"
#include "lib/transport/endpoint.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "tests/support/transports/ucx_network.h"
#include "tests/support/transports/ucx_stranger.h"
#include "transports/ucx/notice.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ucx_lies_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

std::string said_by(const Status& status) { return std::string(status.message()); }

struct SendersLie {
  const char* error;
  std::function<void(UcxStranger&)> tell;
  bool has_joined = true;
};

void check_lie(const SendersLie& lie) {
  CAPTURE(lie.error);
  UcxNetwork network;
  Side receiving(Kind::ucx), sending(Kind::ucx);
  Listening listening = listen_at(receiving, sending);
  UcxStranger stranger(network.fake.table());
  stranger.aim_at(listening.endpoint, ucx_shape);
  if (lie.has_joined) {
    stranger.say_hello();
    REQUIRE(listening.connection->progress().ok());
    REQUIRE(listening.connection->ready());
  }
  lie.tell(stranger);
  Status status;
  for (int i = 0; i < 5 && status.ok(); ++i) status = listening.connection->progress();
  CHECK_THAT(said_by(status), has_text(lie.error));
  CHECK(status.code() == Code::RemoteError);
  CHECK(status.culprits() == std::vector<int>{1});
  CHECK_FALSE(SlotReader(listening.connection->fifo()).has_message());
}

}  // namespace

TEST_CASE("who knows no ticket, or no link, does no harm", "[ucx]") {
  UcxNetwork network;
  Side receiving(Kind::ucx), sending(Kind::ucx);
  Listening listening = listen_at(receiving, sending);
  UcxStranger stranger(network.fake.table());
  stranger.aim_at(listening.endpoint, ucx_shape);
  for (const std::size_t bytes : {0U, 1U, 31U, 33U, 200U})
    stranger.send_raw(std::vector<std::uint8_t>(bytes, 0xee));
  UcpNotice wrong = stranger.notice(UcpNoticeKind::message);
  wrong.link ^= 1;
  stranger.send(wrong, {1, 2, 3});
  wrong = stranger.notice(UcpNoticeKind::message);
  wrong.magic ^= 1;
  stranger.send(wrong);
  wrong = stranger.notice(static_cast<UcpNoticeKind>(ucp_notice_kinds));
  stranger.send(wrong);
  trust::Ticket ticket = stranger.ticket;
  ticket[5] ^= 1;
  stranger.send(stranger.notice(UcpNoticeKind::hello), encode(UcpHello{ticket, stranger.place(7)}));
  stranger.send(stranger.notice(UcpNoticeKind::hello), {});
  std::vector<std::uint8_t> damaged = encode(UcpHello{stranger.ticket, stranger.place(7)});
  damaged.back() ^= 1;
  stranger.send(stranger.notice(UcpNoticeKind::hello), damaged);
  stranger.send(stranger.notice(UcpNoticeKind::hello),
                encode(UcpHello{stranger.ticket, stranger.place(7)}), true);
  for (int i = 0; i < 10; ++i) REQUIRE(listening.connection->progress().ok());
  CHECK_FALSE(listening.connection->ready());
  // The sender whom it was meant for still joins.
  auto connection = sending.transport->connect({.peer = 0, .direction = Direction::send}, ucx_shape,
                                               listening.endpoint);
  REQUIRE(connection.ok());
  Link link{std::move(listening.connection), std::move(*connection), {}, {}};
  CHECK(pump(link, [&] { return link.sender->ready() && link.receiver->ready(); }));
}

TEST_CASE("a sender that lies is an error, and nothing is written", "[ucx]") {
  using Said = UcpNoticeKind;
  using Lie = SendersLie;
  const std::vector<std::uint8_t> some(9000, 1), many((128 << 10) + 1, 1);
  const Lie lie = GENERATE_COPY(
      Lie{"message 0 came in place of 0",
          [](UcxStranger& one) { one.send(one.notice(Said::message)); }, false},
      Lie{"message 64 came in place of 0",
          [](UcxStranger& one) { one.send(one.notice(Said::message, 64)); }},
      Lie{"came in place of 0",
          [](UcxStranger& one) { one.send(one.notice(Said::message, ~std::uint64_t{0})); }},
      Lie{"message 4 came in place of 0",
          [=](UcxStranger& one) { one.send(one.notice(Said::message, 4), some); }},
      Lie{"131073 bytes of payload; a slot has 131072",
          [=](UcxStranger& one) { one.send(one.notice(Said::message), many); }},
      Lie{"131073 bytes of payload; a slot has 131072",
          [=](UcxStranger& one) { one.send(one.notice(Said::message), many, true); }},
      Lie{"message 3 came twice",
          [](UcxStranger& one) {
            one.send(one.notice(Said::message, 3));
            one.send(one.notice(Said::message, 3));
          }},
      Lie{"message 5 is short, and did not come whole",
          [](UcxStranger& one) { one.send(one.notice(Said::message, 5), {1}, true); }},
      Lie{"a notice that is not ours",
          [](UcxStranger& one) { one.send(one.notice(Said::credit, 1)); }},
      Lie{"a notice that is not ours",
          [](UcxStranger& one) { one.send(one.notice(Said::ask), {1}); }},
      Lie{"the sender closed after message 65; 0 have come",
          [](UcxStranger& one) { one.send(one.notice(Said::closing, 65)); }},
      Lie{"the sender closed after message 0; 0 have come", [](UcxStranger& one) {
            one.send(one.notice(Said::closing, 0));
            one.send(one.notice(Said::closing, 0));
          }});
  check_lie(lie);
}

TEST_CASE("a sender that lies about parts of a message is an error", "[ucx]") {
  using Lie = SendersLie;
  const auto part = [](UcxStranger& one, std::uint32_t offset, std::uint32_t bytes,
                       std::uint32_t whole, bool promised = false) {
    UcpNotice notice = one.notice(UcpNoticeKind::message);
    notice.offset = offset;
    notice.whole = whole;
    one.send_as_is(notice, std::vector<std::uint8_t>(bytes, 1), promised);
  };
  const Lie lie = GENERATE_COPY(Lie{"message 0 came twice",
                                    [=](UcxStranger& one) {
                                      part(one, 0, 4096, 9000);
                                      part(one, 0, 4905, 9000);
                                    }},
                                Lie{"message 0 came twice, and differs",
                                    [=](UcxStranger& one) {
                                      part(one, 0, 4096, 9000);
                                      part(one, 4096, 2048, 9001);
                                    }},
                                Lie{"4096 bytes at 8192 are no part of a message of 9000 bytes",
                                    [=](UcxStranger& one) { part(one, 8192, 4096, 9000); }},
                                Lie{"0 bytes at 0 are no part of a message of 9000 bytes",
                                    [=](UcxStranger& one) { part(one, 0, 0, 9000); }},
                                Lie{"8 bytes at 4294967288 are no part of a message of 9000 bytes",
                                    [=](UcxStranger& one) { part(one, ~7U, 8, 9000); }},
                                Lie{"4096 bytes at 0 are no part of a message of 9000 bytes",
                                    [=](UcxStranger& one) { part(one, 0, 4096, 9000, true); }});
  check_lie(lie);
}

TEST_CASE("a receiver that lies is an error", "[ucx]") {
  struct Lie {
    UcpNoticeKind kind;
    std::uint64_t number;
    std::size_t bytes;
  };
  const Lie lie = GENERATE(Lie{UcpNoticeKind::credit, 2, 0}, Lie{UcpNoticeKind::credit, 1, 4},
                           Lie{UcpNoticeKind::closing, 2, 0}, Lie{UcpNoticeKind::message, 0, 0},
                           Lie{UcpNoticeKind::hello, 0, 0});
  UcxNetwork network;
  Side sending(Kind::ucx);
  UcxStranger stranger(network.fake.table());
  const std::vector<std::uint8_t> place = encode(stranger.place(5));
  auto connection = sending.transport->connect(
      {.peer = 0, .direction = Direction::send}, ucx_shape,
      encode_endpoint({.transport = "ucx",
                       .secret = {},
                       .shape = ucx_shape,
                       .places = {std::string(place.begin(), place.end())}}));
  REQUIRE(connection.ok());
  Connection& sender = **connection;
  REQUIRE(sender.progress().ok());
  stranger.progress();
  REQUIRE(stranger.heard.has_value());
  stranger.aim_at(stranger.heard->sender);
  stranger.send(stranger.notice(UcpNoticeKind::credit, 0));
  REQUIRE(sender.progress().ok());
  REQUIRE(sender.ready());
  SlotWriter out(sender.fifo());
  out.commit(8, message_flag(1, 1), DeliveryMode::staged);
  REQUIRE(sender.progress().ok());
  stranger.send(stranger.notice(lie.kind, lie.number), std::vector<std::uint8_t>(lie.bytes));
  const Status status = sender.look_at_peer(0, ns_per_s);
  CHECK(said_by(status) ==
        "ucx to rank 0 (fake/device, other/device): the receiver sent a notice that is not ours");
  CHECK(status.culprits() == std::vector<int>{0});
}

}  // namespace ucx_lies_test
