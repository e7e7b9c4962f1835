// Relays between two halves of a link in host memory, over real transports. The test plays the
// kernels' part: it writes the link's words as kernels/cuda/simple.h does. device_test.cc has the
// real kernels.
#include "lib/cuda/device_relay.h"

#include "tests/support/device/relay_pair.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

namespace device_relay_test {

using namespace gyre;
using namespace gyre::exec;
using namespace gyre::tests;
using transport::DeliveryMode;

namespace {

constexpr DeviceShape shape = small_relay_shape;
constexpr std::uint64_t slots = 1 << shape.slot_shift;

bool try_send(const cuda::DeviceEnd& end) { return relay_send(shape, end); }
bool try_receive(const cuda::DeviceEnd& end) { return relay_receive(shape, end); }

// A raw peer: it says what it likes.
struct Stranger {
  explicit Stranger(Kind kind) : pair(kind), writer(raw().fifo()) {}
  transport::Connection& raw() {
    if (sender != nullptr) return *sender;
    Side& far = is_one_process(Kind::tcp4) ? pair.near : pair.other;
    const transport::FifoShape fifo = DeviceRelay::fifo_shape(shape);
    Link there = open_link(far, pair.near, fifo), back = open_link(pair.near, far, fifo);
    REQUIRE(back.status.ok());
    sender = std::move(back.sender);
    sink = std::move(there.receiver);
    relay = std::make_unique<DeviceRelay>(5, shape, pair.halves[0].link, std::move(there.sender),
                                          std::move(back.receiver));
    return *sender;
  }
  void say(const RelayMessage& message, std::size_t payload) {
    std::memset(writer.place(), 0, relay_header_bytes + payload);
    std::memcpy(writer.place(), &message, sizeof message);
    writer.commit(static_cast<std::uint32_t>(relay_header_bytes + payload), 0,
                  DeliveryMode::staged);
  }
  Status judged() {
    const std::int64_t end_ns = SystemClock::read() + 10 * ns_per_s;
    Status status;
    while (status.ok() && SystemClock::read() < end_ns) {
      bool moved = false;
      (void)sender->progress();
      status = relay->advance(moved);
    }
    return status;
  }

  RelayPair pair;
  std::unique_ptr<transport::Connection> sender, sink;
  std::unique_ptr<DeviceRelay> relay;
  transport::SlotWriter writer;
};

}  // namespace

TEST_CASE("messages of all channels arrive whole and in order, both ways", "[relay]") {
  const Kind kind = GENERATE(from_range(relay_kinds()));
  // Words of 32 bits would wrap, and so do the 40 that a note keeps of a number.
  const std::uint64_t first = GENERATE(0ULL, (1ULL << 32) - 5, (1ULL << 40) - 5, ~0ULL - 5);
  const unsigned slowness = GENERATE(1U, 12U);  // of receivers
  CAPTURE(kind_name(kind), first, slowness);
  RelayPair pair(kind, {.first = first});
  constexpr std::uint64_t messages = 150;
  REQUIRE(pair.stream(messages, first, slowness, rng_seed() + slowness));
  pair.leave();
  // Everything was credited before the goodbye, if it was told.
  for (RelayHalf& half : pair.halves)
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
      CHECK(load_word(half.sender(channel).heard) - first >= messages - slots);
}

TEST_CASE("a channel that nobody reads holds up no other", "[relay]") {
  const Kind kind = GENERATE(from_range(relay_kinds()));
  RelayPair pair(kind);
  const cuda::DeviceEnd full = pair.halves[0].sender(0);
  const cuda::DeviceEnd out = pair.halves[0].sender(1), in = pair.halves[1].receiver(1);
  CHECK(pair.turn_until([&] {
    (void)try_send(full);
    (void)try_send(out);
    (void)try_receive(in);
    return *in.next == 100;
  }));
  CHECK(*full.next == slots);
  CHECK(load_word(pair.halves[1].receiver(0).heard) == slots);
}

TEST_CASE("what was told before a goodbye arrives, and the end is no error", "[relay]") {
  const Kind kind = GENERATE(from_range(relay_kinds()));
  CAPTURE(kind_name(kind));
  RelayPair pair(kind);
  const cuda::DeviceEnd out = pair.halves[1].sender(2), in = pair.halves[0].receiver(2);
  REQUIRE(try_send(out));
  REQUIRE(try_send(out));
  pair.relays[1]->leave();
  REQUIRE(pair.turn_until([&] { return pair.relays[1]->has_left(); }));
  pair.relays[1].reset();
  CHECK(try_receive(in));
  CHECK(try_receive(in));
  // Credits for one who has left go nowhere.
  bool moved = false;
  for (int i = 0; i < 100; ++i) REQUIRE(pair.relays[0]->advance(moved).ok());
  pair.relays[0]->leave();
  CHECK(pair.turn_until([&] { return pair.relays[0]->has_left(); }));
}

TEST_CASE("a peer that goes without a goodbye is an error that names it", "[relay]") {
  const Kind kind = GENERATE(Kind::tcp4, Kind::tcp_tls);
  CAPTURE(kind_name(kind));
  RelayPair pair(kind);
  const cuda::DeviceEnd out = pair.halves[0].sender(0), in = pair.halves[1].receiver(0);
  REQUIRE(pair.turn_until([&] {
    (void)try_send(out);
    (void)try_receive(in);
    return *in.next == 20;
  }));
  pair.relays[1].reset();
  CHECK_FALSE(pair.turn_until([&] {
    (void)try_send(out);
    return false;
  }));
  bool moved = false;
  const Status error = pair.relays[0]->advance(moved);
  CHECK(error.code() == Code::RemoteError);
  CHECK(error.culprits() == std::vector<int>{1});
  CHECK(error.message() == pair.relays[0]->advance(moved).message());
  CHECK_FALSE(moved);
}

TEST_CASE("what a relay says out of turn is refused, and its rank named", "[relay]") {
  struct Case {
    const char* name;
    RelayMessage message;
    std::size_t payload;
    const char* word;
  };
  const auto tail = [](std::uint32_t channel, std::uint64_t number, std::uint32_t bytes) {
    return RelayMessage{.channel = channel,
                        .word = RelayWord::tail,
                        .number = number,
                        .flag = transport::message_flag(number, 3),
                        .bytes = bytes};
  };
  RelayMessage odd = tail(0, 1, 4);
  odd.reserved = 1;
  RelayMessage misnumbered = tail(0, 1, 4);
  misnumbered.flag = transport::message_flag(2, 3);
  const Case one = GENERATE_COPY(values<Case>({
      {"a channel too many", tail(3, 1, 4), 4, "channel 3 of 3"},
      {"the second before the first", tail(0, 2, 4), 4, "out of order: 1 is next"},
      {"more bytes than said", tail(0, 1, 4), 8, "has 8 bytes and says 4"},
      {"fewer bytes than said", tail(0, 1, 256), 8, "has 8 bytes and says 256"},
      {"more than a slot", tail(0, 1, 257), 257, "a slot has 256"},
      {"bits that mean nothing", odd, 4, "unknown bits"},
      {"another number in the note", misnumbered, 4, "numbered 2 in its note"},
      {"no word", {.word = RelayWord{9}}, 0, "unknown word 9"},
      {"a release of what was not sent",
       {.channel = 1, .word = RelayWord::head, .number = 1},
       0,
       "sent were 0"},
      {"a release of nothing", {.word = RelayWord::head}, 0, "released 0, after 0"},
      {"a release with bytes", {.word = RelayWord::head, .number = 1}, 3, "3 bytes"},
      {"a long goodbye",
       {.channel = 1, .word = RelayWord::goodbye},
       0,
       "goodbye has other contents"},
  }));
  INFO(one.name);
  Stranger stranger(Kind::tcp4);
  stranger.say(one.message, one.payload);
  const Status error = stranger.judged();
  INFO(error.message());
  CHECK(error.code() == Code::RemoteError);
  CHECK(error.culprits() == std::vector<int>{5});
  CHECK(error.message().find(one.word) != std::string::npos);
  for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
    CHECK(load_word(stranger.pair.halves[0].receiver(channel).heard) == 0);
}

TEST_CASE("a message that finds no free slot is refused: it would fall on one unread", "[relay]") {
  Stranger stranger(Kind::tcp4);
  for (std::uint64_t number = 1; number <= slots + 1; ++number)
    stranger.say(
        {.word = RelayWord::tail, .number = number, .flag = transport::message_flag(number, 3)}, 0);
  const Status error = stranger.judged();
  CHECK(error.message().find("finds no free slot of 2") != std::string::npos);
  CHECK(load_word(stranger.pair.halves[0].receiver(0).heard) == slots);
}

TEST_CASE("whoever speaks on after a goodbye is refused", "[relay]") {
  Stranger stranger(Kind::tcp4);
  stranger.say({.word = RelayWord::goodbye}, 0);
  stranger.say({.word = RelayWord::goodbye}, 0);
  CHECK(stranger.judged().message().find("sends messages after its goodbye") != std::string::npos);
}

TEST_CASE("a kernel that breaks its own link is told apart from a peer", "[relay]") {
  RelayPair pair(Kind::shm_threads);
  const cuda::DeviceEnd out = pair.halves[0].sender(0), in = pair.halves[0].receiver(0);
  const int which = GENERATE(0, 1, 2);
  if (which == 0) store_word(out.told, slots + 1);
  if (which == 1) store_word(in.told, 1);
  if (which == 2) {
    out.notes[0] = {0, 257, DeliveryMode::staged, 0};
    store_word(out.told, 1);
  }
  CHECK_FALSE(pair.turn_until([] { return false; }));
  bool moved = false;
  CHECK(pair.relays[0]->advance(moved).code() == Code::InternalError);
}

TEST_CASE("a relay that sleeps is woken by what comes", "[relay]") {
  const Kind kind = GENERATE(from_range(relay_kinds()));
  CAPTURE(kind_name(kind));
  RelayPair pair(kind);
  const cuda::DeviceEnd out = pair.halves[0].sender(1), in = pair.halves[1].receiver(1);
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    (void)try_send(out);
    bool moved = false;
    for (int i = 0; i < 1000 && pair.relays[0]->advance(moved).ok(); ++i) std::this_thread::yield();
  });
  const std::int64_t begin_ns = SystemClock::read();
  int sleeps = 0;
  bool moved = false;
  while (sleeps < 100 && pair.relays[1]->advance(moved).ok() && load_word(in.heard) == 0) {
    WaitSet set;
    if (pair.relays[1]->arm(set)) set.sleep(10 * ns_per_s), ++sleeps;
    pair.relays[1]->disarm();
  }
  CHECK(load_word(in.heard) == 1);
  CHECK(SystemClock::read() - begin_ns < 5 * ns_per_s);
  sender.join();
  // What a kernel here tells keeps it from sleeping.
  REQUIRE(try_receive(in));
  WaitSet set;
  CHECK_FALSE(pair.relays[1]->arm(set));
  pair.relays[1]->disarm();
}

}  // namespace device_relay_test
