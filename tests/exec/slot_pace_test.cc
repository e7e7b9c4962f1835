// lib/exec/slot_pace.h: which way a link's messages are written, by how long both ways take.
#include "lib/exec/slot_pace.h"

#include "tests/support/catch.h"

namespace slot_pace_test {

using namespace gyre::exec;

namespace {

constexpr std::uint64_t bytes = 64 << 10;

struct WayCosts {
  std::uint64_t cached, past;  // ticks for 1,024 bytes
};

// Writes so many messages. How many of them went past the cache.
int streamed_of(SlotPace& pace, int messages, const WayCosts& costs, int late = -1) {
  int streamed = 0;
  for (int i = 0; i < messages; ++i) {
    const bool streams = pace.streams();
    streamed += streams;
    const std::uint64_t pause = i == late ? 10'000'000 : 0;
    if (pace.is_timed())
      pace.took((streams ? costs.past : costs.cached) * bytes / 1024 + pause, bytes);
    else
      pace.skip();
  }
  return streamed;
}

}  // namespace

TEST_CASE("messages go past the cache where that is twice as fast, and are tried otherwise",
          "[pace]") {
  constexpr int messages = 10'000, few = 100;
  SlotPace far, near, alike;
  CHECK(streamed_of(far, messages, {1000, 120}) > messages - 4 * few);
  CHECK(streamed_of(near, messages, {60, 130}) < few);
  CHECK(streamed_of(alike, messages, {200, 120}) < few);
  // Both ways are tried now and then.
  CHECK(streamed_of(far, messages, {1000, 120}) < messages);
  CHECK(streamed_of(near, messages, {60, 130}) > 0);
}

TEST_CASE("a link whose ends move is written the other way soon", "[pace]") {
  constexpr int settling = 600, messages = 5000, few = 60;
  SlotPace pace;
  (void)streamed_of(pace, settling, {60, 130});
  (void)streamed_of(pace, settling, {1000, 120});
  CHECK(streamed_of(pace, messages, {1000, 120}) > messages - few);
  (void)streamed_of(pace, settling, {60, 130});
  CHECK(streamed_of(pace, messages, {60, 130}) < few);
}

TEST_CASE("one message in which the thread lost its processor changes nothing", "[pace]") {
  for (int late = 0; late < 300; ++late) {
    CAPTURE(late);
    SlotPace near, far;
    CHECK(streamed_of(near, 600, {60, 130}, late) < 20);
    (void)streamed_of(far, 600, {1000, 120});
    CHECK(streamed_of(far, 600, {1000, 120}, late) > 580);
  }
}

TEST_CASE("only what goes where the peer was last is timed", "[pace]") {
  struct Slots {
    bool one_way;
    bool goes_one_way() const { return one_way; }
  };
  struct Port {
    Slots slots;
    SlotPace pace;
  };
  Port both_ways{{false}, {}}, one_way{{true}, {}};
  int past = 0, written = 0;
  const auto write = [&](bool streamed) { past += streamed, ++written; };
  for (int i = 0; i < 1000; ++i) write_paced(both_ways, bytes, write);
  for (int i = 0; i < 1000; ++i) write_paced(one_way, SlotPace::min_bytes - 1, write);
  CHECK(past == 0);
  for (int i = 0; i < 1000; ++i) write_paced(one_way, bytes, write);
  CHECK(past > 0);
  CHECK(written == 3000);
}

}  // namespace slot_pace_test
