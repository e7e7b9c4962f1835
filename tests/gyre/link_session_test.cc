// The talk of gyre link's ranks, by two threads on one communicator: a session measures and tells
// both ends, a report arrives as it was sent, and words that make no sense are refused.
#include "tools/gyre/link_session.h"

#include "lib/base/clock.h"
#include "tests/support/catch.h"
#include "tools/gyre/link_reports.h"

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace link_session_test {

using namespace gyre;
using namespace gyre::tools;

namespace {

// Two ranks of host memory, each used by a thread of its own.
class TwoEnds {
 public:
  TwoEnds() {
    const std::array<int, 2> devices = {GYRE_DEVICE_HOST, GYRE_DEVICE_HOST};
    REQUIRE(gyreCommInitAll(comms_.data(), 2, devices.data()) == gyreSuccess);
  }
  ~TwoEnds() {
    for (gyreComm_t comm : comms_) (void)gyreCommAbort(comm);
  }
  TwoEnds(const TwoEnds&) = delete;
  TwoEnds& operator=(const TwoEnds&) = delete;

  // `other` runs in a thread of its own; a call that fails on one ends the other's.
  void run(const std::function<void(gyreComm_t)>& one,
           const std::function<void(gyreComm_t)>& other) {
    std::thread beside([&] { other(comms_[1]); });
    one(comms_[0]);
    beside.join();
  }

 private:
  std::array<gyreComm_t, 2> comms_{};
};

struct SessionMemory {
  std::vector<std::byte> outgoing = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> incoming = std::vector<std::byte>(1 << 20);
  SessionTask task(gyreComm_t comm) {
    return {.comm = comm,
            .seed = 7,
            .work_ns = 100 * ns_per_ms,
            .until_ns = SystemClock::read() + 20 * ns_per_s,
            .outgoing = outgoing,
            .incoming = incoming};
  }
};

LinkMeasurement some_link(int low, int high) {
  LinkMeasurement link;
  link.pair = {low, high};
  link.round = 3;
  link.kind = "tcp between hosts";
  link.best_latency_us = 10;
  link.latency_us = 12.5;
  link.latency_p99_us = 40;
  link.up = {1e9, 1 << 20, 1 << 24, {1, 2, 3, 4, 5, 6, 7}};
  link.down.bytes_per_s = 2e9;
  link.both_bytes_per_s = std::numeric_limits<double>::quiet_NaN();
  link.was_repeated = link.is_crowded = true;
  link.failure = std::string(1000, 'x');
  return link;
}

}  // namespace

TEST_CASE("a session measures both directions, and both ends know it", "[link]") {
  TwoEnds ends;
  SessionMemory here, there;
  LinkMeasurement leader, follower;
  leader.known_bytes_per_s = 5e9;
  follower.known_bytes_per_s = 4e9;
  std::string leading, following;
  Status led, followed;
  ends.run(
      [&](gyreComm_t comm) { led = lead_session(here.task(comm), leader, leading); },
      [&](gyreComm_t comm) { followed = follow_session(there.task(comm), follower, following); });
  REQUIRE(led.ok());
  REQUIRE(followed.ok());
  CHECK(leader.known_bytes_per_s == 4e9);
  CHECK(leader.latency_us > 0);
  CHECK(leader.latency_p99_us >= leader.latency_us);
  for (const LinkMeasurement* const one : {&leader, &follower}) {
    CHECK(one->up.bytes_per_s > 0);
    CHECK(one->down.bytes_per_s > 0);
    CHECK(one->both_bytes_per_s > 0);
    CHECK(one->up.checked_bytes >= one->up.message_bytes);
    CHECK(one->up.damage.bytes + one->down.damage.bytes == 0);
    CHECK_FALSE(one->has_garbled_talk);
  }
  CHECK(leader.latency_us >= leader.best_latency_us);
  CHECK(follower.latency_us == leader.latency_us);
  CHECK(follower.best_latency_us == leader.best_latency_us);
  CHECK(follower.down.checked_bytes == leader.down.checked_bytes);
}

TEST_CASE("a follower refuses what it does not know, and more bytes than it has room for",
          "[link]") {
  constexpr std::uint64_t echo = 1, take = 2, give = 3, unknown = 77;
  for (const auto& [verb, count] :
       {std::pair(unknown, std::uint64_t{0}), std::pair(take, std::uint64_t{2} << 20),
        std::pair(give, ~std::uint64_t{0}), std::pair(echo, std::uint64_t{1} << 40)}) {
    CAPTURE(verb, count);
    TwoEnds ends;
    SessionMemory memory;
    LinkMeasurement follower;
    std::string doing;
    Status said, followed;
    const TalkWords words = {verb, count, 1};
    ends.run(
        [&](gyreComm_t comm) { said = send_talk(comm, 1, words); },
        [&](gyreComm_t comm) { followed = follow_session(memory.task(comm), follower, doing); });
    CHECK(said.ok());
    CHECK(followed.code() == Code::InvalidArgument);
  }
}

TEST_CASE("words that were changed on the way are not taken for words", "[link]") {
  TwoEnds ends;
  std::array<std::uint64_t, talk_words + 1> changed{};
  changed[3] = 1;
  Status heard;
  TalkWords words{};
  bool came_whole = true;
  ends.run(
      [&](gyreComm_t comm) {
        (void)gyreSend(changed.data(), changed.size(), gyreUint64, 1, comm, nullptr);
      },
      [&](gyreComm_t comm) { heard = receive_talk(comm, 0, words, came_whole); });
  CHECK(heard.ok());
  CHECK_FALSE(came_whole);
}

TEST_CASE("a report arrives as it was sent, with figures that are numbers", "[link]") {
  TwoEnds ends;
  const std::vector<LinkMeasurement> sent = {some_link(0, 2), some_link(2, 3)};
  Status told;
  Result<std::vector<LinkMeasurement>> heard = std::vector<LinkMeasurement>();
  ends.run([&](gyreComm_t comm) { told = send_report(comm, sent); },
           [&](gyreComm_t comm) { heard = receive_report(comm, 2, 4); });
  REQUIRE(told.ok());
  REQUIRE(heard.ok());
  REQUIRE(heard->size() == 2);
  const LinkMeasurement& link = heard->back();
  CHECK(link.pair == LinkPair{2, 3});
  CHECK(link.round == 3);
  CHECK(link.kind == "tcp between hosts");
  CHECK(link.best_latency_us == 10);
  CHECK(link.up.damage.first_offset == 5);
  CHECK(link.was_repeated);
  CHECK(link.is_crowded);
  CHECK(link.both_bytes_per_s == 0);
  CHECK(link.failure.size() < 1000);
  CHECK(link.failure.starts_with("xxx"));
}

TEST_CASE("a rank cannot report links of others, or of ranks that there are not", "[link]") {
  for (const LinkPair& pair : {LinkPair{0, 1}, LinkPair{2, 4}, LinkPair{-1, 2}, LinkPair{2, 2}}) {
    CAPTURE(pair.low, pair.high);
    TwoEnds ends;
    Result<std::vector<LinkMeasurement>> heard = std::vector<LinkMeasurement>();
    ends.run([&](gyreComm_t comm) { (void)send_report(comm, {some_link(pair.low, pair.high)}); },
             [&](gyreComm_t comm) { heard = receive_report(comm, 2, 4); });
    CHECK(heard.status().code() == Code::InvalidArgument);
  }
}

TEST_CASE("rank 0 names a link, or none", "[link]") {
  for (const std::optional<LinkPair>& asked :
       {std::optional(LinkPair{1, 3}), std::optional<LinkPair>()}) {
    TwoEnds ends;
    Status told;
    Result<std::optional<LinkPair>> heard = std::optional<LinkPair>();
    ends.run([&](gyreComm_t comm) { told = send_errand(comm, asked); },
             [&](gyreComm_t comm) { heard = receive_errand(comm, 4); });
    REQUIRE(told.ok());
    REQUIRE(heard.ok());
    CHECK(*heard == asked);
  }
}

}  // namespace link_session_test
