// Counters that wrap around, or lose their high bits, change nothing: calls, messages, lines and
// splits that begin shortly before 2^31, 2^32 and 2^40. (64-bit message counters wrap in
// slots_test.cc and transport_conformance_test.cc, numbers of handles and ops in
// handle_table_test.cc.)
#include "tests/support/catch.h"
#include "tests/support/comm/many_communicators.h"
#include "tests/support/comm/ranks.h"

#include <numeric>
#include <string>

namespace turning_test {

using namespace gyre::tests;

namespace {

constexpr int ranks = 3;
constexpr int rounds = 40;
// Rounds take several calls, and these several lines each: all turn within the rounds.
constexpr std::int64_t before = 25;

struct Path {
  const char* transport;
  const char* protocol;
  const char* security;
};
constexpr Path paths[] = {{"shm", "LL", "ticket"},
                          {"shm", "Simple", "ticket"},
                          {"shm", "Direct", "ticket"},
                          {"tcp", "Simple", "ticket"},
                          {"tcp", "Simple", "tls"}};

// Empty, or what is wrong.
std::string reduce(gyreComm_t comm, int rank, int round) {
  std::vector<int> values(static_cast<std::size_t>(1 + round * 37));
  std::iota(values.begin(), values.end(), rank + round);
  if (gyreAllReduce(values.data(), values.data(), values.size(), gyreInt, gyreSum, comm, nullptr) !=
      gyreSuccess)
    return gyreGetLastError(comm);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != ranks * (round + static_cast<int>(i)) + ranks * (ranks - 1) / 2)
      return "a wrong sum";
  return {};
}

// To the next rank, from the one before; longer than a slot now and then.
std::string pass_on(gyreComm_t comm, int rank, int round) {
  const std::size_t count = round % 8 == 7 ? 100'000 : static_cast<std::size_t>(round);
  std::vector<int> sent(count, rank * 1000 + round), got(count, -1);
  if (gyreGroupStart() != gyreSuccess ||
      gyreSend(sent.data(), count, gyreInt, (rank + 1) % ranks, comm, nullptr) != gyreSuccess ||
      gyreRecv(got.data(), count, gyreInt, (rank + ranks - 1) % ranks, comm, nullptr) !=
          gyreSuccess ||
      gyreGroupEnd() != gyreSuccess)
    return gyreGetLastError(comm);
  const int wanted = (rank + ranks - 1) % ranks * 1000 + round;
  return got == std::vector<int>(count, wanted) ? "" : "wrong values received";
}

std::string split_off(gyreComm_t comm, int rank) {
  gyreComm_t child = nullptr;
  if (gyreCommSplit(comm, 0, -rank, &child, nullptr) != gyreSuccess) return gyreGetLastError(comm);
  const bool good = headcount(child) == ranks;
  return gyreCommDestroy(child) == gyreSuccess && good ? "" : "a child without all ranks";
}

void go_across(const Path& path, std::int64_t limit) {
  CAPTURE(path.transport, path.protocol, path.security, limit);
  const WithVariables variables(Variables{{"GYRE_TRANSPORT", path.transport},
                                          {"GYRE_PROTO", path.protocol},
                                          {"GYRE_TCP_SECURITY", path.security},
                                          {"GYRE_FIRST_SEQUENCE", std::to_string(limit - before)}});
  on_ranks(ranks, [](int rank, gyreComm_t comm, Complaints& complaints) {
    for (int round = 0; round < rounds; ++round) {
      std::string wrong = reduce(comm, rank, round);
      if (wrong.empty()) wrong = pass_on(comm, rank, round);
      if (wrong.empty()) wrong = split_off(comm, rank);
      if (!wrong.empty()) return complaints.add("round " + std::to_string(round) + ": " + wrong);
    }
  });
}

}  // namespace

TEST_CASE("calls, messages and splits go across the ends of 31, 32 and 40 bits", "[turning]") {
  for (const Path& path : paths)
    for (const int bits : {31, 32, 40}) go_across(path, 1LL << bits);
}

TEST_CASE("ranks that call different things at the turn get both calls", "[turning]") {
  for (const char* transport : {"shm", "tcp"}) {
    for (std::int64_t first = -2; first <= 1; ++first) {
      const WithVariables variables(
          Variables{{"GYRE_TRANSPORT", transport},
                    {"GYRE_FIRST_SEQUENCE", std::to_string((1LL << 40) + first)}});
      on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
        complaints.expect(headcount(comm) == 2, "the first call fails");
        int data[11] = {};
        const std::size_t count = rank == 0 ? 10 : 11;
        gyreResult_t result = gyreAllReduce(data, data, count, gyreInt, gyreSum, comm, nullptr);
        if (result == gyreSuccess) result = gyreBarrier(comm, nullptr);  // it learns of it there
        complaints.expect(result == gyreMismatch, gyreGetLastError(comm));
      });
    }
  }
}

TEST_CASE("ranks with different first numbers are told of it", "[turning]") {
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  gyreComm_t comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    const WithVariables variables(Variables{{"GYRE_FIRST_SEQUENCE", std::to_string(rank)}});
    CHECK(gyreCommInitRankConfig(&comms[rank], 2, id, rank, &config) == gyreInProgress);
  }
  gyreResult_t state = gyreInProgress;
  const double until = seconds_now() + 20;
  while (state == gyreInProgress && seconds_now() < until)
    REQUIRE(gyreCommGetAsyncError(comms[0], &state) == gyreSuccess);
  CHECK(state == gyreInvalidUsage);
  for (gyreComm_t comm : comms) (void)gyreCommAbort(comm);
}

}  // namespace turning_test
