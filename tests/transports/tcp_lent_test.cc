// tcp from and into memory that callers lend: a message goes to its place in the output of its own
// call, and into a slot whenever anything speaks against that. After a failure nothing is touched.
#include "lib/transport/carrier.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tcp_lent_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape{4, 2, 64 << 10};
constexpr std::uint64_t signature = 5, call = 9;
constexpr std::size_t message_bytes = 40'000, output_bytes = 100'000;
constexpr std::byte untouched{0xee};

// What is sent, and what the receiver lends meanwhile.
struct Sending {
  std::uint64_t place = 8;
  std::uint64_t of_call = call;
  std::uint64_t of_signature = signature;
  bool is_final = true;
  std::vector<LentPart> more = {};  // beside the one part
};
struct Lending {
  std::uint64_t to_call = call;
  std::uint64_t bytes = output_bytes;
  bool stores_all = false;
  bool is_over = false;
};

struct Lent {
  explicit Lent(Kind kind) : receiving(kind), sending(kind) {
    link = open_link(receiving, sending, shape);
    REQUIRE(link.status.ok());
    writer = SlotWriter(link.sender->fifo());
    reader = SlotReader(link.receiver->fifo());
    fill(input.data(), input.size(), 1);
  }

  void lend(const Lending& lending) {
    const Loan loan{.region = region_same_process,
                    .offset = reinterpret_cast<std::uintptr_t>(output.data()),
                    .bytes = lending.bytes,
                    .signature = signature,
                    .stores_all = lending.stores_all};
    link.receiver->carrier()->lend(loan, lending.to_call);
    if (lending.is_over) link.receiver->carrier()->end_loan();
  }

  void commit(const Sending& sending_now) {
    LentParts& parts = lent_parts(writer.view(), writer.tail());
    parts = {.call = sending_now.of_call};
    const std::uint64_t half = message_bytes / 2;
    REQUIRE(parts.add({input.data(), sending_now.place, half}));
    REQUIRE(parts.add({input.data() + half, sending_now.place + half, half}));
    std::uint64_t bytes = message_bytes;
    for (const LentPart& part : sending_now.more) {
      REQUIRE(parts.add(part));
      bytes += part.bytes;
    }
    writer.commit(static_cast<std::uint32_t>(bytes),
                  message_flag(writer.tail() + 1, sending_now.of_signature),
                  sending_now.is_final ? DeliveryMode::push : DeliveryMode::pull);
  }

  void expect_at(std::uint64_t place) {
    REQUIRE(pump(link, [&] { return reader.has_message() && link.sender->flushed(); }));
    CHECK(reader.note().delivery == DeliveryMode::push);
    CHECK(reader.note().bytes == message_bytes);
    CHECK(is_filled(output.data() + place, message_bytes, 1));
    const auto is_other = [](std::byte byte) { return byte != untouched; };
    const std::size_t changed = static_cast<std::size_t>(std::ranges::count_if(output, is_other));
    CHECK(changed <= message_bytes);
    reader.release();
  }
  void expect_in_slot() {
    REQUIRE(pump(link, [&] { return reader.has_message() && link.sender->flushed(); }));
    CHECK(reader.note().delivery == DeliveryMode::staged);
    CHECK(is_filled(reader.place(), message_bytes, 1));
    CHECK(output == std::vector<std::byte>(output_bytes, untouched));
    reader.release();
  }

  Side receiving, sending;
  Link link;
  SlotWriter writer;
  SlotReader reader;
  std::vector<std::byte> input = std::vector<std::byte>(message_bytes);
  std::vector<std::byte> output = std::vector<std::byte>(output_bytes, untouched);
};

}  // namespace

TEST_CASE("a message goes from lent memory to its place in lent memory", "[tcp]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  CAPTURE(kind_name(kind));
  Lent lent(kind);
  CHECK_FALSE(lent.link.sender->carrier()->grants());
  CHECK(lent.link.sender->carrier()->hold(lent.input.data(), message_bytes) != nullptr);
  for (const std::uint64_t place : {std::uint64_t{8}, output_bytes - message_bytes}) {
    lent.lend({});
    lent.commit({.place = place});
    lent.expect_at(place);
    std::ranges::fill(lent.output, untouched);
  }
  // The other kind of message, where all is stored as it comes.
  lent.lend({.stores_all = true});
  lent.commit({.is_final = false});
  lent.expect_at(8);
}

TEST_CASE("a message whose place is not lent to its call goes into a slot", "[tcp]") {
  struct Reason {
    const char* why;
    Sending sending;
    Lending lending;
  };
  const Reason reason =
      GENERATE(Reason{"the receiver is in an earlier call", {.of_call = call + 1}, {}},
               Reason{"the receiver is in a later call", {}, {.to_call = call + 1}},
               Reason{"the call is over", {}, {.is_over = true}},
               Reason{"it says no call", {.place = 0, .of_call = 0}, {}},
               Reason{"another signature", {.of_signature = signature + 1}, {}},
               Reason{"it is not final", {.is_final = false}, {}},
               Reason{"one byte too far", {.place = output_bytes - message_bytes + 1}, {}},
               Reason{"far away", {.place = ~std::uint64_t{0} - message_bytes}, {}},
               Reason{"less is lent", {.place = 0}, {.bytes = message_bytes - 1}});
  CAPTURE(reason.why);
  Lent lent(Kind::tcp4);
  lent.lend(reason.lending);
  lent.commit(reason.sending);
  lent.expect_in_slot();
}

TEST_CASE("a message of several places goes into a slot whole", "[tcp]") {
  Lent lent(Kind::tcp4);
  lent.lend({});
  const std::byte behind[100] = {};
  lent.commit({.more = {{behind, 90'000, sizeof behind}}});
  lent.expect_in_slot();
}

TEST_CASE("what was cut off neither reads nor writes what was lent", "[tcp]") {
  Lent lent(Kind::tcp4);
  lent.lend({});
  lent.commit({});
  SECTION("at the sender, before it has sent anything") {
    lent.link.sender->carrier()->cut_off();
    const Status status = lent.link.sender->progress();
    CHECK(status.code() == Code::Aborted);
    CHECK_THAT(status.full_text(), has_text("the call that lent memory to it has failed"));
    CHECK_FALSE(lent.link.sender->flushed());
  }
  SECTION("at the receiver, once the bytes are on their way") {
    REQUIRE(lent.link.sender->progress().ok());
    lent.link.receiver->carrier()->cut_off();
    const Status status = lent.link.receiver->progress();
    CHECK(status.code() == Code::Aborted);
    CHECK(status.culprits() == std::vector<int>{1});
    CHECK(lent.output == std::vector<std::byte>(output_bytes, untouched));
  }
  CHECK_FALSE(lent.reader.has_message());
}

}  // namespace tcp_lent_test
