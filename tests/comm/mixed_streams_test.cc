// Both kinds of host stream on one communicator: the progress thread drives one, callers drive the
// other, and both advance whichever is waited for first. Ranks are threads.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace mixed_streams_test {

using namespace gyre::tests;

namespace {

constexpr int rounds = 40;

struct Streams {
  Streams() {
    (void)gyreStreamCreate(&threaded);
    (void)gyreStreamCreateWithFlags(&by_caller, GYRE_STREAM_BY_CALLER);
  }
  ~Streams() {
    (void)gyreStreamDestroy(threaded);
    (void)gyreStreamDestroy(by_caller);
  }
  gyreStream_t threaded = nullptr, by_caller = nullptr;
};

Variables with_deadline(const char* transport) {
  return {{"GYRE_TIMEOUT", "20"}, {"GYRE_TRANSPORT", transport}, {"GYRE_SOCKET_IFNAME", "lo"}};
}

void expect(Complaints& complaints, gyreResult_t result, const char* what) {
  complaints.expect(result == gyreSuccess, std::string(what) + ": " + gyreGetLastError(nullptr));
}

}  // namespace

TEST_CASE("a receive that its caller drives goes on beside one of the progress thread") {
  const WithVariables set(with_deadline(GENERATE("shm", "tcp")));
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    const Streams streams;
    for (int round = 0; round < rounds && complaints.none_yet(); ++round) {
      std::array<float, 2> values{static_cast<float>(round), static_cast<float>(round + 1)};
      if (rank == 0) {
        for (float& value : values)
          expect(complaints, gyreSend(&value, 1, gyreFloat, 1, comm, nullptr), "send");
        continue;
      }
      std::array<float, 2> got{-1, -1};
      expect(complaints, gyreRecv(&got[0], 1, gyreFloat, 0, comm, streams.by_caller), "first");
      expect(complaints, gyreRecv(&got[1], 1, gyreFloat, 0, comm, streams.threaded), "second");
      expect(complaints, gyreStreamSynchronize(streams.by_caller), "its caller's");
      expect(complaints, gyreStreamSynchronize(streams.threaded), "the thread's");
      complaints.expect(got == values, "wrong values");
    }
  });
}

TEST_CASE("collectives of one kind of stream go on beside sends of the other") {
  const WithVariables set(with_deadline(GENERATE("shm", "tcp")));
  const bool collective_is_threaded = GENERATE(true, false);
  on_ranks(3, [=](int rank, gyreComm_t comm, Complaints& complaints) {
    const Streams streams;
    const gyreStream_t one = collective_is_threaded ? streams.threaded : streams.by_caller;
    const gyreStream_t other = collective_is_threaded ? streams.by_caller : streams.threaded;
    for (int round = 0; round < rounds && complaints.none_yet(); ++round) {
      float sum = 1, sent = static_cast<float>(rank), received = -1;
      const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
      expect(complaints, gyreRecv(&received, 1, gyreFloat, previous, comm, other), "receive");
      expect(complaints, gyreAllReduce(&sum, &sum, 1, gyreFloat, gyreSum, comm, one), "sum");
      expect(complaints, gyreSend(&sent, 1, gyreFloat, next, comm, one), "send");
      expect(complaints, gyreStreamSynchronize(streams.by_caller), "its caller's");
      expect(complaints, gyreStreamSynchronize(streams.threaded), "the thread's");
      complaints.expect(sum == 3 && received == static_cast<float>(previous), "wrong values");
    }
  });
}

TEST_CASE("whoever asks a non-blocking communicator how it is drives what waits for callers") {
  const WithVariables set(with_deadline(GENERATE("shm", "tcp")));
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  on_ranks(
      2,
      [](int, gyreComm_t comm, Complaints& complaints) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(15);
        const auto settle = [&] {
          gyreResult_t result = gyreInProgress;
          while (result == gyreInProgress && std::chrono::steady_clock::now() < until)
            expect(complaints, gyreCommGetAsyncError(comm, &result), "asking");
          return result;
        };
        complaints.expect(settle() == gyreSuccess, "it does not come about");
        const Streams streams;
        float value = 1;
        expect(complaints,
               gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, streams.by_caller),
               "all-reduce");
        complaints.expect(settle() == gyreSuccess, "it does not settle");
        complaints.expect(value == 2, "a wrong sum");
      },
      &config);
}

TEST_CASE("a thread that waits goes on with what another one queues meanwhile for callers") {
  const WithVariables set(with_deadline(GENERATE("shm", "tcp")));
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreComm_t other = nullptr;
    expect(complaints, gyreCommSplit(comm, 0, rank, &other, nullptr), "split");
    const Streams streams;
    // Longer than its slots: it leaves only as the receiver goes on.
    std::vector<float> data(1'000'000, rank == 1 ? 7.0F : 0.0F);
    float value = 1;
    if (rank == 1)
      expect(complaints, gyreSend(data.data(), data.size(), gyreFloat, 0, other, nullptr), "send");
    std::thread second([&] {
      if (rank == 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the first one waits by then
      expect(complaints, gyreRecv(data.data(), data.size(), gyreFloat, 1, other, streams.by_caller),
             "receive");
    });
    expect(complaints, gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, nullptr), "sum");
    second.join();
    expect(complaints, gyreStreamSynchronize(streams.by_caller), "its caller's");
    complaints.expect(value == 2 && data == std::vector<float>(data.size(), 7), "wrong values");
    expect(complaints, gyreCommDestroy(other), "end");
  });
}

namespace {

// A call of a group, on one of the two streams or on none.
enum class On { none, threaded, by_caller };
struct Grouped {
  char what;  // a sum, a barrier or a split
  On on;
};
struct Groups {
  std::vector<Grouped> of[2];  // by rank
  gyreResult_t expected;
};

gyreResult_t carry_out(const std::vector<Grouped>& group, int rank, gyreComm_t comm, float& value) {
  const Streams streams;
  gyreComm_t child = nullptr;
  (void)gyreGroupStart();
  for (const auto& [what, on] : group) {
    const gyreStream_t stream = on == On::none       ? nullptr
                                : on == On::threaded ? streams.threaded
                                                     : streams.by_caller;
    if (what == 's') (void)gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, stream);
    if (what == 'b') (void)gyreBarrier(comm, stream);
    if (what == 'c') (void)gyreCommSplit(comm, 0, rank, &child, nullptr);
  }
  gyreResult_t worst = gyreGroupEnd();
  for (const gyreStream_t stream : {streams.threaded, streams.by_caller})
    if (const gyreResult_t done = gyreStreamSynchronize(stream); worst == gyreSuccess) worst = done;
  if (child != nullptr) (void)gyreCommDestroy(child);
  return worst;
}

}  // namespace

TEST_CASE("a group's order is that of its calls on streams, and then of those without one") {
  const WithVariables set(with_deadline(GENERATE("shm", "tcp")));
  constexpr On none = On::none, one = On::threaded, other = On::by_caller;
  const std::vector<Groups> all = {
      {{{{'s', one}, {'b', other}}, {{'s', other}, {'b', one}}}, gyreSuccess},
      {{{{'s', one}, {'b', other}}, {{'s', none}, {'b', none}}}, gyreSuccess},
      {{{{'s', one}, {'b', none}}, {{'s', other}, {'b', other}}}, gyreSuccess},
      {{{{'c', none}, {'s', one}}, {{'s', other}, {'c', none}}}, gyreSuccess},
      {{{{'s', none}, {'b', one}}, {{'b', other}, {'s', other}}}, gyreSuccess},
      {{{{'s', one}, {'b', other}}, {{'b', other}, {'s', one}}}, gyreMismatch},
      {{{{'s', none}, {'b', one}}, {{'s', one}, {'b', one}}}, gyreMismatch},
      {{{{'c', none}, {'s', one}}, {{'c', none}, {'s', none}}}, gyreMismatch},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO("groups " << i);
    const Groups& groups = all[i];
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      float value = 1;
      const gyreResult_t result = carry_out(groups.of[rank], rank, comm, value);
      complaints.expect(result == groups.expected, "rank " + std::to_string(rank) + " got " +
                                                       gyreGetErrorString(result) + ": " +
                                                       gyreGetLastError(comm));
      complaints.expect(result != gyreSuccess || value == 2, "a wrong sum");
      if (result != gyreSuccess) (void)gyreCommAbort(comm);
    });
  }
}

}  // namespace mixed_streams_test
