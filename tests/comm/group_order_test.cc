// What waits for what in groups, and behind them: joins, queues of streams, other communicators.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace group_order_test {

using namespace gyre::tests;

namespace {

using Pair = std::array<gyreComm_t, 2>;

Variables with_deadline() { return {{"GYRE_TIMEOUT", "20"}, {"GYRE_INIT_TIMEOUT", "20"}}; }

std::string last_error() { return gyreGetLastError(nullptr); }

// Both ranks, of this thread, in the group that is open, or one of their own.
Pair begin_pair(int blocking = 1) {
  Pair pair{};
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = blocking;
  for (int rank = 0; rank < 2; ++rank)
    CHECK(gyreCommInitRankConfig(&pair[static_cast<std::size_t>(rank)], 2, id, rank, &config) ==
          gyreSuccess);
  return pair;
}

Pair make_pair() {
  REQUIRE(gyreGroupStart() == gyreSuccess);
  const Pair pair = begin_pair();
  const gyreResult_t made = gyreGroupEnd();
  INFO(last_error());
  REQUIRE(made == gyreSuccess);
  return pair;
}

void destroy(const Pair& pair) {
  for (gyreComm_t comm : pair) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

}  // namespace

TEST_CASE("sends of a group begin when its communicators have joined") {
  const WithVariables set(with_deadline());
  float sent = 7, received = 0;
  REQUIRE(gyreGroupStart() == gyreSuccess);
  const Pair pair = begin_pair();
  CHECK(gyreSend(&sent, 1, gyreFloat, 1, pair[0], nullptr) == gyreSuccess);
  CHECK(gyreRecv(&received, 1, gyreFloat, 0, pair[1], nullptr) == gyreSuccess);
  const gyreResult_t ended = gyreGroupEnd();
  INFO(last_error());
  CHECK(ended == gyreSuccess);
  CHECK(received == 7);
  destroy(pair);
}

TEST_CASE("sends on streams begin when their communicators have joined") {
  const WithVariables set(with_deadline());
  const bool blocking = GENERATE(true, false);
  gyreStream_t stream = nullptr;
  REQUIRE(gyreStreamCreate(&stream) == gyreSuccess);
  float sent = 7, received = 0;
  REQUIRE(gyreGroupStart() == gyreSuccess);
  const Pair pair = begin_pair(blocking ? 1 : 0);
  if (!blocking) CHECK(gyreGroupEnd() == gyreInProgress);
  if (!blocking) REQUIRE(gyreGroupStart() == gyreSuccess);
  CHECK(gyreSend(&sent, 1, gyreFloat, 1, pair[0], stream) == gyreSuccess);
  CHECK(gyreRecv(&received, 1, gyreFloat, 0, pair[1], stream) == gyreSuccess);
  const gyreResult_t ended = gyreGroupEnd();
  INFO(last_error());
  CHECK(ended == gyreSuccess);
  CHECK(gyreStreamSynchronize(stream) == gyreSuccess);
  CHECK(received == 7);
  destroy(pair);
  CHECK(gyreStreamDestroy(stream) == gyreSuccess);
}

TEST_CASE("collectives on streams begin when their communicators have joined") {
  const WithVariables set(with_deadline());
  std::array<gyreStream_t, 2> streams{};
  for (gyreStream_t& stream : streams) REQUIRE(gyreStreamCreate(&stream) == gyreSuccess);
  std::array<float, 2> values{3, 4};
  REQUIRE(gyreGroupStart() == gyreSuccess);
  const Pair pair = begin_pair();
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(gyreAllReduce(&values[rank], &values[rank], 1, gyreFloat, gyreSum, pair[rank],
                        streams[rank]) == gyreSuccess);
  const gyreResult_t ended = gyreGroupEnd();
  INFO(last_error());
  CHECK(ended == gyreSuccess);
  for (gyreStream_t stream : streams) CHECK(gyreStreamSynchronize(stream) == gyreSuccess);
  CHECK(values == std::array<float, 2>{7, 7});
  destroy(pair);
  for (gyreStream_t stream : streams) CHECK(gyreStreamDestroy(stream) == gyreSuccess);
}

TEST_CASE("a communicator whose group was not carried out is broken") {
  const WithVariables set(with_deadline());
  REQUIRE(gyreGroupStart() == gyreSuccess);
  const Pair pair = begin_pair();
  CHECK(gyreSend(nullptr, 1, gyreFloat, 1, pair[0], nullptr) == gyreInvalidArgument);
  CHECK(gyreGroupEnd() == gyreInvalidArgument);
  for (gyreComm_t comm : pair) {
    gyreResult_t error = gyreSuccess;
    CHECK(gyreCommGetAsyncError(comm, &error) == gyreSuccess);
    CHECK(error != gyreSuccess);
    float value = 1;
    CHECK(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, nullptr) != gyreSuccess);
    CHECK_THAT(std::string(gyreGetLastError(comm)),
               has_text("has not joined, as its group was not carried out"));
  }
  destroy(pair);
}

TEST_CASE("a call that waits for its communicator's queue lets those of others go on") {
  const WithVariables set(with_deadline());
  const Pair pair = make_pair();
  gyreStream_t stream = nullptr;
  REQUIRE(gyreStreamCreate(&stream) == gyreSuccess);
  std::array<float, 4> values{1, 2, 10, 20};
  const auto sum = [&](std::size_t place, gyreComm_t comm, gyreStream_t on) {
    CHECK(gyreAllReduce(&values[place], &values[place], 1, gyreFloat, gyreSum, comm, on) ==
          gyreSuccess);
  };
  REQUIRE(gyreGroupStart() == gyreSuccess);
  sum(0, pair[0], stream);
  sum(1, pair[0], nullptr);
  sum(2, pair[1], nullptr);
  sum(3, pair[1], nullptr);
  const gyreResult_t ended = gyreGroupEnd();
  INFO(last_error());
  CHECK(ended == gyreSuccess);
  CHECK(gyreStreamSynchronize(stream) == gyreSuccess);
  CHECK(values == std::array<float, 4>{11, 22, 11, 22});
  destroy(pair);
  CHECK(gyreStreamDestroy(stream) == gyreSuccess);
}

TEST_CASE("sends of a group on a stream wait for no earlier collective of their communicator") {
  const WithVariables set(with_deadline());
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::array<float, 2> sums{1, 2};
    float message = rank == 0 ? 7.0F : 0.0F;
    const auto expect = [&](gyreResult_t result) {
      complaints.expect(result == gyreSuccess, last_error());
    };
    std::array<gyreStream_t, 2> streams{};
    if (rank == 0)
      for (gyreStream_t& stream : streams) expect(gyreStreamCreate(&stream));
    // The other rank makes its first collective when the message has come.
    else
      expect(gyreRecv(&message, 1, gyreFloat, 0, comm, nullptr));
    expect(gyreAllReduce(sums.data(), sums.data(), 1, gyreFloat, gyreSum, comm, streams[0]));
    expect(gyreGroupStart());
    expect(gyreAllReduce(&sums[1], &sums[1], 1, gyreFloat, gyreSum, comm, streams[1]));
    if (rank == 0) expect(gyreSend(&message, 1, gyreFloat, 1, comm, streams[1]));
    expect(gyreGroupEnd());
    for (gyreStream_t stream : streams)
      if (stream != nullptr) expect(gyreStreamDestroy(stream));
    complaints.expect(sums == std::array<float, 2>{2, 4} && message == 7, "wrong values");
  });
}

TEST_CASE("an abort does not wait for what others queued before") {
  const WithVariables set(with_deadline());
  const Pair waiting = make_pair();
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  gyreComm_t own = nullptr;
  REQUIRE(gyreCommInitRankConfig(&own, 1, id, 0, &config) == gyreInProgress);
  gyreStream_t stream = nullptr;
  REQUIRE(gyreStreamCreate(&stream) == gyreSuccess);
  float received = 0, value = 1, sent = 5;
  CHECK(gyreRecv(&received, 1, gyreFloat, 1, waiting[0], stream) == gyreSuccess);
  CHECK(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, own, stream) == gyreSuccess);
  // It comes after that, on a stream of its communicator's own.
  CHECK(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, own, nullptr) == gyreInProgress);
  const auto begun = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(own) == gyreSuccess);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
  CHECK(gyreSend(&sent, 1, gyreFloat, 0, waiting[1], nullptr) == gyreSuccess);
  CHECK(gyreStreamSynchronize(stream) == gyreAborted);
  CHECK(received == 5);
  destroy(waiting);
  CHECK(gyreStreamDestroy(stream) == gyreSuccess);
}

TEST_CASE("each call of a group has a deadline of its own") {
  const bool on_stream = GENERATE(false, true);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 2000;
  on_ranks(
      2,
      [=](int rank, gyreComm_t comm, Complaints& complaints) {
        gyreStream_t stream = nullptr;
        if (on_stream) (void)gyreStreamCreate(&stream);
        std::array<float, 6> values{};
        if (rank == 0) (void)gyreGroupStart();
        for (float& value : values) {
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
          complaints.expect(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm,
                                          rank == 0 ? stream : nullptr) == gyreSuccess,
                            last_error());
        }
        if (rank == 0) complaints.expect(gyreGroupEnd() == gyreSuccess, last_error());
        if (stream == nullptr) return;
        complaints.expect(gyreStreamSynchronize(stream) == gyreSuccess, "its stream failed");
        (void)gyreStreamDestroy(stream);
      },
      &config);
}

}  // namespace group_order_test
