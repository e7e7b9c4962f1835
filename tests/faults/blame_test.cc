// Which rank is blamed when a deadline passes: the rank at which the chain of waits ends, not the
// one that a rank directly waits for. Ranks as threads.
#include "lib/base/clock.h"
#include "lib/base/owned.h"
#include "lib/base/path_watch.h"
#include "lib/comm/whereabouts.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <sys/socket.h>
#include <vector>

namespace blame_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

constexpr int n = 4;
constexpr std::chrono::milliseconds late_enough{2500};

// What each rank does in place of nothing; who is to be named, and how.
struct Case {
  std::string name;
  std::function<gyreResult_t(int rank, gyreComm_t comm, std::vector<float>& data)> call;
  std::string blame;
  std::vector<int> calls_nothing;  // these are in no call
};

gyreResult_t sum(gyreComm_t comm, std::vector<float>& data) {
  return gyreAllReduce(data.data(), data.data(), data.size(), gyreFloat, gyreSum, comm, nullptr);
}

gyreResult_t take(gyreComm_t comm, std::vector<float>& data, int from) {
  return gyreRecv(data.data(), data.size(), gyreFloat, from, comm, nullptr);
}

gyreResult_t take_any(gyreComm_t comm, std::vector<float>& data) {
  return gyreRecvTagged(data.data(), data.size(), gyreFloat, GYRE_ANY_SOURCE, GYRE_ANY_TAG, nullptr,
                        nullptr, comm, nullptr);
}

std::vector<Case> cases() {
  return {
      {"a ring of ranks, of which one does not come",
       [](int, gyreComm_t comm, std::vector<float>& data) { return sum(comm, data); },
       "rank 3 has not begun number 2 (its last is number 1): it is in no call",
       {3}},
      {"receives that wait for one another in a row",
       [](int rank, gyreComm_t comm, std::vector<float>& data) {
         return take(comm, data, rank + 1);
       },
       "rank 3 is in no call",
       {3}},
      {"a collective that waits for who waits in a receive",
       [](int rank, gyreComm_t comm, std::vector<float>& data) {
         return rank == 1 ? take(comm, data, 3) : sum(comm, data);
       },
       "rank 3",
       {3}},
      {"a receive from any rank, where one rank is in no call",
       [](int rank, gyreComm_t comm, std::vector<float>& data) {
         return rank == 0 ? take_any(comm, data) : take(comm, data, 0);
       },
       "rank 3 waits for nobody; rank 0 for a message of any rank",
       {3}},
      {"receives from any rank alone",
       [](int, gyreComm_t comm, std::vector<float>& data) { return take_any(comm, data); },
       "ranks 0-3 all wait",
       {}},
      {"receives that wait for each other",
       [](int rank, gyreComm_t comm, std::vector<float>& data) {
         return take(comm, data, (rank + 1) % n);
       },
       "ranks 0-3 wait for each other",
       {}},
  };
}

void check_case(const Case& one, gyreConfig_t& config) {
  on_ranks(
      n,
      [&](int rank, gyreComm_t comm, Complaints& complaints) {
        std::vector<float> data(50'000, 1);
        complaints.expect(sum(comm, data) == gyreSuccess, gyreGetLastError(comm));
        if (std::ranges::find(one.calls_nothing, rank) != one.calls_nothing.end())
          return std::this_thread::sleep_for(late_enough);
        const gyreResult_t result = one.call(rank, comm, data);
        const std::string text = gyreGetLastError(comm);
        complaints.expect(result == gyreTimeout, text);
        complaints.expect(text.find(one.blame) != text.npos, text);
      },
      &config);
}

}  // namespace

TEST_CASE("when a deadline passes, the rank is blamed at which all waits end", "[blame]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  const char* transport = GENERATE("shm", "tcp");
  const WithVariables variables({{"GYRE_TRANSPORT", transport}, {"GYRE_ALGO", "allreduce:ring"}});
  for (const Case& one : cases()) {
    INFO(transport << ": " << one.name);
    check_case(one, config);
  }
}

TEST_CASE("a rank that waits in a call of another communicator is told as such", "[blame]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  on_ranks(
      3,
      [&](int rank, gyreComm_t comm, Complaints& complaints) {
        gyreConfig_t longer = GYRE_CONFIG_INITIALIZER;
        longer.timeoutMs = 3000;
        gyreComm_t other = nullptr;
        complaints.expect(gyreCommSplit(comm, 0, rank, &other, &longer) == gyreSuccess,
                          gyreGetLastError(comm));
        std::vector<float> data(100, 1);
        const gyreResult_t result = sum(rank == 1 ? other : comm, data);
        const std::string text = gyreGetLastError(rank == 1 ? other : comm);
        complaints.expect(result == gyreTimeout || result == gyreRemoteError, text);
        if (rank != 1)
          complaints.expect(text.find("rank 1 has not begun number") != text.npos &&
                                text.find("waits in a call of communicator") != text.npos,
                            text);
        (void)gyreCommAbort(other);
      },
      &config);
}

TEST_CASE("who takes from any rank is told when all have left", "[blame]") {
  const char* transport = GENERATE("shm", "tcp");
  const bool talked = GENERATE(false, true);
  const WithVariables variables({{"GYRE_TRANSPORT", transport}, {"GYRE_TIMEOUT", "20"}});
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::vector<float> data(10, 1);
    if (rank != 0) {
      if (talked)
        complaints.expect(
            gyreSend(data.data(), data.size(), gyreFloat, 0, comm, nullptr) == gyreSuccess,
            gyreGetLastError(comm));
      return (void)gyreCommDestroy(comm);
    }
    for (int i = 0; i < (talked ? 2 : 0); ++i)
      complaints.expect(take_any(comm, data) == gyreSuccess, gyreGetLastError(comm));
    complaints.expect(take_any(comm, data) == gyreMismatch, "it waits on");
    const std::string text = gyreGetLastError(comm);
    complaints.expect(text.find("ranks 1, 2 left the communicator") != text.npos, text);
  });
}

TEST_CASE("what is told of whereabouts is read as it was, and nothing else is believed") {
  comm::Whereabouts told;
  told.standing = comm::Whereabouts::Standing::waits;
  told.last_collective = 77;
  told.collective = {BlockedOn::data, 3, 1, 76};
  told.transfers = {BlockedOn::credit, -1, 2, 0};
  told.elsewhere = "1885e4d1";
  const control::MessageBytes rank_message = comm::encode(told);
  constexpr int ranks = 4;
  const auto read = comm::decode_whereabouts(rank_message, ranks);
  REQUIRE(read.has_value());
  CHECK(comm::encode(*read) == rank_message);
  CHECK(read->collective.peer == 3);
  for (std::size_t length = 0; length < rank_message.size(); ++length)
    CHECK_FALSE(
        comm::decode_whereabouts(
            {rank_message.begin(), rank_message.begin() + static_cast<std::ptrdiff_t>(length)},
            ranks)
            .has_value());
  control::MessageBytes bad = rank_message;
  bad[0] = 9;
  CHECK_FALSE(comm::decode_whereabouts(bad, ranks).has_value());
  CHECK_FALSE(comm::decode_whereabouts(rank_message, 3).has_value());  // there is no rank 3
}

TEST_CASE("a path is cut when questions are out and nothing has come back for the limit") {
  constexpr std::int64_t s = ns_per_s;
  struct Look {
    double at_s;
    PathSight sight;
    bool cut;
  };
  const auto heard = [](double ago_s) { return static_cast<std::int64_t>(ago_s * 1e9); };
  struct Story {
    std::string name;
    std::vector<Look> looks;
  };
  const std::vector<Story> stories = {
      {"idle for long, nothing asked", {{10, {false, false, 0, 0, heard(9)}, false}}},
      {"bytes out, and no answer",
       {{1.0, {true, false, 0, 0, heard(0.3)}, false},
        {1.6, {true, false, 0, 0, heard(0.9)}, false},
        {1.8, {true, false, 0, 0, heard(1.1)}, true}}},
      {"long idle, and just asked",
       {{10, {true, false, 1, 0, heard(9)}, false},
        {10.25, {true, false, 1, 0, heard(9.25)}, false},
        {10.6, {true, false, 1, 0, heard(9.6)}, true}}},
      {"answers between two looks",
       {{1, {true, false, 0, 0, heard(0.9)}, false},
        {1.5, {true, false, 0, 0, heard(0.1)}, false},
        {2.2, {true, false, 0, 0, heard(0.8)}, false}}},
      {"bytes are repeated, while packets of the other end come",
       {{1, {true, false, 0, 0, heard(0.1)}, false},
        {1.5, {true, false, 0, 1, heard(0.1)}, false},
        {1.8, {true, false, 0, 2, heard(0.1)}, false},
        {2.0, {true, false, 0, 3, heard(0.1)}, true}}},
      {"bytes are repeated, and then answered",
       {{1, {true, false, 0, 0, heard(0.1)}, false},
        {1.8, {true, false, 0, 2, heard(0.9)}, false},
        {2.1, {true, false, 0, 0, heard(0.1), 40}, false},
        {2.9, {true, false, 0, 2, heard(0.1), 40}, false}}},
      {"packets of the other end come for a while, and are no answers",
       {{1.0, {true, false, 0, 0, heard(0.3)}, false},
        {1.2, {true, false, 0, 0, heard(0.05)}, false},
        {1.9, {true, false, 0, 2, heard(0.6)}, false},
        {2.05, {true, false, 0, 3, heard(0.75)}, true}}},
      {"a full window, one probe lost",
       {{10, {true, true, 1, 0, heard(9)}, false},
        {12, {true, true, 1, 0, heard(11)}, false},
        {13, {true, true, 2, 0, heard(12)}, true}}},
  };
  for (const Story& story : stories) {
    INFO(story.name);
    PathWatch watch;
    for (const Look& look : story.looks) {
      INFO("at " << look.at_s << " s");
      const auto cut = watch.judge(look.sight, static_cast<std::int64_t>(look.at_s * 1e9), s);
      CHECK(cut.has_value() == look.cut);
    }
  }
}

TEST_CASE("the kernel gives up no connection before the limit") {
  const int limit_s = GENERATE(1, 10, 30, 60, 126, 127, 300, 600, 900);
  CAPTURE(limit_s);
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_path_questions(socket.get(), limit_s * ns_per_s);
  const auto option = [&](int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(socket.get(), IPPROTO_TCP, name, &value, &length) == 0 ? value : -1;
  };
  CHECK(option(TCP_KEEPINTVL) * option(TCP_KEEPCNT) >= std::max(limit_s, 120));
  // Without a doubt repeats become as rare as the kernel likes.
  constexpr int longest_repeat = 44;  // TCP_RTO_MAX_MS
  CHECK((option(longest_repeat) == -1 || option(longest_repeat) == 120'000));
  PathWatch watch;
  CHECK(watch.max_repeat_ms(ns_per_s, limit_s * ns_per_s) == 120'000);
  watch.judge({.has_questions = true, .repeats = 2}, ns_per_s, limit_s * ns_per_s);
  CHECK(watch.max_repeat_ms(ns_per_s, limit_s * ns_per_s) == 120'000);
  const int in_doubt_ms = watch.max_repeat_ms(2 * ns_per_s, limit_s * ns_per_s);
  CHECK(in_doubt_ms <= std::max(1000, limit_s * 1000 / 7));
  // It waits 16 times, first for 200 ms, each time twice as long as before.
  std::int64_t pause_ms = 200, given_up_ms = 0;
  for (int repeat = 0; repeat <= 15; ++repeat) {
    given_up_ms += pause_ms;
    pause_ms = std::min<std::int64_t>(2 * pause_ms, in_doubt_ms);
  }
  CHECK(given_up_ms >= limit_s * 1000);
}

}  // namespace blame_test
