// tcp over several sockets: messages that come in parts and out of order, and how the sockets share
// them.
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "lib/transport/slots.h"
#include "tests/support/catch.h"
#include "tests/support/transports/transport_pair.h"
#include "transports/tcp/inbound.h"
#include "transports/tcp/rail_pace.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <sys/socket.h>

namespace tcp_rails_test {

using namespace gyre;
using namespace gyre::tests;
using namespace gyre::transport;

namespace {

const FifoShape small = {.slot_count = 4, .line_count = 2, .slot_bytes = 4096};
const FifoShape large = {.slot_count = 4, .line_count = 2, .slot_bytes = 256 << 10};

WireHeader part_of(std::uint64_t number, std::uint32_t offset, std::uint32_t bytes, bool is_last) {
  WireHeader header;
  header.sequence = number;
  header.signature = message_flag(number + 1, 5);
  header.offset = offset;
  header.bytes = bytes;
  header.flags = is_last ? 0 : wire_flag::more;
  return header;
}

std::uint32_t length_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(number * 997 % (small.slot_bytes + 1));
}

// The parts that one socket brings, in order.
using RailParts = std::vector<WireHeader>;

// Each message goes whole to a rail, or in parts to several; each rail has them in order.
std::vector<RailParts> deal(std::uint64_t messages, std::mt19937_64& random) {
  std::vector<RailParts> rails(3);
  for (std::uint64_t number = 0; number < messages; ++number) {
    const std::uint32_t length = length_of(number);
    std::vector<std::size_t> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    const std::size_t count = length < 3 ? 1 : 1 + random() % 3;
    std::uint32_t offset = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_last = i + 1 == count;
      const auto most = static_cast<std::uint32_t>(length - offset - (count - i - 1));
      const std::uint32_t bytes =
          is_last ? length - offset : 1 + static_cast<std::uint32_t>(random() % most);
      rails[order[i]].push_back(part_of(number, offset, bytes, is_last));
      offset += bytes;
    }
  }
  return rails;
}

struct Fifo {
  std::shared_ptr<FifoMemory> memory = std::move(private_fifo(small)).value();
  InboundMessages inbound{memory->view};
  SlotReader in{memory->view};
};

}  // namespace

TEST_CASE("parts that come over sockets in any order make whole messages in order", "[tcp]") {
  const std::uint64_t seed = GENERATE(range(1, 101));
  std::mt19937_64 random(seed);
  constexpr std::uint64_t messages = 60;
  std::vector<RailParts> rails = deal(messages, random);
  std::vector<std::optional<WireHeader>> at_hand(rails.size());
  Fifo fifo;
  std::vector<std::byte> whole(small.slot_bytes);
  std::uint64_t taken = 0;
  for (int turn = 0; taken < messages; ++turn) {
    REQUIRE(turn < 100'000);
    const std::size_t rail = random() % rails.size();
    std::optional<WireHeader>& header = at_hand[rail];
    if (header) {
      fifo.inbound.take(*header);
      header.reset();
    } else if (!rails[rail].empty() && fifo.inbound.has_room(rails[rail].front().sequence)) {
      header = rails[rail].front();
      rails[rail].erase(rails[rail].begin());
      const Result<std::byte*> place = fifo.inbound.claim(*header);
      REQUIRE(place.ok());
      fill(whole.data(), length_of(header->sequence), header->sequence);
      std::memcpy(*place, whole.data() + header->offset, header->bytes);
    }
    if (random() % 4 != 0 || !fifo.in.has_message()) continue;
    REQUIRE(fifo.in.note().bytes == length_of(taken));
    REQUIRE(fifo.in.note().flag == message_flag(taken + 1, 5));
    REQUIRE(is_filled(fifo.in.place(), length_of(taken), taken));
    fifo.in.release();
    ++taken;
  }
  CHECK_FALSE(fifo.inbound.has_gap());
}

TEST_CASE("a part that does not fit what has come of its message is refused", "[tcp]") {
  struct Lie {
    const char* what;
    WireHeader part;
  };
  WireHeader of_another_call = part_of(0, 2000, 1000, false);
  of_another_call.signature = message_flag(1, 6);
  const Lie lie = GENERATE_COPY(Lie{"the same once more", part_of(0, 0, 1000, false)},
                                Lie{"the end once more", part_of(0, 3000, 1000, true)},
                                Lie{"beyond the end", part_of(0, 3500, 501, false)},
                                Lie{"another end", part_of(0, 1000, 100, true)},
                                Lie{"over the next", part_of(0, 1000, 2001, false)},
                                Lie{"over the one before", part_of(0, 999, 10, false)},
                                Lie{"beyond the slot", part_of(0, 3000, 1097, true)},
                                Lie{"of another call", of_another_call});
  CAPTURE(lie.what);
  Fifo fifo;
  REQUIRE(fifo.inbound.claim(part_of(0, 0, 1000, false)).ok());
  REQUIRE(fifo.inbound.claim(part_of(0, 3000, 1000, true)).ok());
  const Result<std::byte*> refused = fifo.inbound.claim(lie.part);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::RemoteError);
  CHECK_THAT(std::string(refused.status().message()), has_text("of message 0 do not fit"));
}

TEST_CASE("messages in parts land in the memory that is lent for their call", "[tcp]") {
  Fifo fifo;
  std::vector<std::byte> output(5000), whole(4000);
  fifo.inbound.lend({.region = region_same_process,
                     .offset = reinterpret_cast<std::uintptr_t>(output.data()),
                     .bytes = output.size(),
                     .signature = 5},
                    9);
  fill(whole.data(), whole.size(), 1);
  for (const std::uint32_t offset : {2000U, 0U}) {
    WireHeader part = part_of(0, offset, 2000, offset == 2000);
    part.flags |= wire_flag::final;
    part.call = 9;
    part.place = 900;
    const Result<std::byte*> place = fifo.inbound.claim(part);
    REQUIRE(place.ok());
    CHECK(*place == output.data() + 900 + offset);
    std::memcpy(*place, whole.data() + offset, 2000);
    CHECK_FALSE(fifo.in.has_message());
    fifo.inbound.take(part);
  }
  REQUIRE(fifo.in.has_message());
  CHECK(fifo.in.note().delivery == DeliveryMode::push);
  CHECK(std::equal(whole.begin(), whole.end(), output.begin() + 900));
}

TEST_CASE("a socket's pace is what it delivers while it has a backlog", "[tcp]") {
  constexpr std::int64_t ms = ns_per_ms;
  RailPace pace;
  std::int64_t now_ns = 100 * ns_per_s;
  Deliveries seen{0, 1000, 7 * ms};
  pace.look(seen, now_ns);
  CHECK(pace.bytes_per_ns() == 0);
  CHECK(pace.ns_for(500, 2) == 250);
  const auto go_on = [&](std::int64_t passed_ns, std::int64_t busy_ns, double bytes_per_ns) {
    now_ns += passed_ns;
    seen.busy_ns += busy_ns;
    seen.delivered_bytes += static_cast<std::uint64_t>(bytes_per_ns * static_cast<double>(busy_ns));
    pace.look(seen, now_ns);
  };
  for (int i = 0; i < 40; ++i) go_on(5 * ms, 5 * ms, 0.25);
  CHECK(pace.bytes_per_ns() > 0.24);
  CHECK(pace.bytes_per_ns() < 0.26);
  // It follows a change, but for what came in while nobody looked.
  for (int i = 0; i < 40; ++i) go_on(5 * ms, 5 * ms, 0.5);
  CHECK(pace.bytes_per_ns() > 0.48);
  go_on(100 * ms, 60 * ms, 0.001);
  CHECK(pace.bytes_per_ns() > 0.48);
  // Waiting for the program says nothing of the path.
  for (int i = 0; i < 40; ++i) go_on(15 * ms, ms, 0.5);
  CHECK(pace.bytes_per_ns() > 0.48);
  seen.backlog_bytes = 1 << 20;
  go_on(ms, ms, 0.5);
  const double until = pace.ns_for(1 << 20, 1);
  CHECK(until > 4.0e6);
  CHECK(until < 4.4e6);
  // What is not heard of for a second is forgotten.
  go_on(1100 * ms, 0, 0.5);
  CHECK(pace.bytes_per_ns() == 0);
}

TEST_CASE("messages of any length arrive whole over several sockets", "[tcp]") {
  PairOptions options;
  options.shape = large;
  constexpr std::uint64_t messages = 120;
  const auto length = [](std::uint64_t number) -> std::uint32_t {
    constexpr std::uint32_t lengths[] = {0, 1, 100'001, 256 << 10, 64 << 10, 65'535, 200, 16 << 10};
    return lengths[number % std::size(lengths)];
  };
  const auto send = [&](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotWriter out(end.connection->fifo());
    for (std::uint64_t number = 0; number < messages; ++number) {
      GYRE_EXPECT(end.until([&] { return out.has_credit(); }));
      fill(out.place(), length(number), number);
      out.commit(length(number), message_flag(number + 1, 5), DeliveryMode::staged);
    }
    GYRE_EXPECT(end.flush());
    return {};
  };
  const auto receive = [&](End& end) -> std::string {
    GYRE_EXPECT(end.join());
    SlotReader in(end.connection->fifo());
    for (std::uint64_t number = 0; number < messages; ++number) {
      GYRE_EXPECT(end.until([&] { return in.has_message(); }));
      GYRE_EXPECT(in.note().bytes == length(number));
      GYRE_EXPECT(is_filled(in.place(), length(number), number));
      in.release();
    }
    return {};
  };
  const PairResult result = run_pair(Kind::tcp_rails, options, send, receive);
  CHECK(result.sender == "");
  CHECK(result.receiver == "");
}

TEST_CASE("ends that do not agree on the number of sockets do not meet", "[tcp]") {
  Side three(Kind::tcp_rails), one(Kind::tcp4);
  for (const auto& [receiving, sending] : {std::pair{&three, &one}, std::pair{&one, &three}}) {
    const Link link = open_link(*receiving, *sending, small);
    CHECK(link.status.culprits().size() == 1);
    CHECK_THAT(std::string(link.status.message()),
               has_text("GYRE_TCP_SOCKETS=") && has_text("the same on all ranks"));
  }
}

TEST_CASE("each of several sockets goes to an address of its own, or fails", "[tcp]") {
  Side receiving(Kind::tcp_rails), sending(Kind::tcp_rails);
  std::string closed;
  listen_loopback(AF_INET, closed).reset();
  receiving.identity.addresses.push_back(closed);
  const Link link = open_link(receiving, sending, small);
  CHECK(link.status.code() == Code::RemoteError);
  CHECK_THAT(std::string(link.status.message()), has_text(closed) && has_text("ECONNREFUSED"));
}

TEST_CASE("a peer that closes while a part is missing is an error", "[tcp]") {
  Side receiving(Kind::tcp_rails), sending(Kind::tcp_rails);
  Link link = open_link(receiving, sending, large);
  REQUIRE(link.status.ok());
  SlotWriter out(link.sender->fifo());
  // Nobody reads: what the kernel has not taken is lost with the sender.
  for (std::uint64_t number = 0; number < 60 && link.sender->progress().ok(); ++number) {
    if (!out.has_credit()) continue;
    out.commit(256 << 10, message_flag(number + 1, 5), DeliveryMode::staged);
  }
  REQUIRE_FALSE(link.sender->flushed());
  link.sender.reset();
  SlotReader in(link.receiver->fifo());
  Status status;
  for (int turn = 0; turn < 200'000 && status.ok(); ++turn) {
    status = link.receiver->progress();
    WaitSet set;
    if (status.ok()) link.receiver->arm(set);
    if (in.has_message()) in.release();
  }
  CHECK(status.code() == Code::RemoteError);
  CHECK_THAT(std::string(status.message()), has_text("closed"));
}

}  // namespace tcp_rails_test
