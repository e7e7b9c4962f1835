// Small calls that repeat, and short sends and receives, in trouble: what goes wrong in their
// middle or between them is told as for any other call.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace short_calls_test {

using namespace gyre::tests;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

gyreResult_t sum(std::size_t count, gyreDataType_t type, gyreRedOp_t op, gyreComm_t comm) {
  std::array<double, 16> in{}, out{};
  return gyreAllReduce(in.data(), out.data(), count, type, op, comm, nullptr);
}

gyreResult_t receive(std::size_t count, gyreDataType_t type, int tag, gyreComm_t comm, int peer) {
  std::array<double, 16> place{};
  return gyreRecvTagged(place.data(), count, type, peer, tag, nullptr, nullptr, comm, nullptr);
}

// A rank's part of messages to and fro, so that they take the short way from then on.
gyreResult_t ping_pong(int rank, gyreComm_t comm, std::size_t count = 2, int tag = 0) {
  const std::array<float, 16> in{};
  const auto send = [&] {
    return gyreSendTagged(in.data(), count, gyreFloat, 1 - rank, tag, comm, nullptr);
  };
  if (rank == 0)
    if (const gyreResult_t sent = send(); sent != gyreSuccess) return sent;
  const gyreResult_t received = receive(count, gyreFloat, tag, comm, 1 - rank);
  return received != gyreSuccess || rank == 0 ? received : send();
}

// What a rank calls, each time alike.
using Act = std::function<gyreResult_t(int rank, gyreComm_t comm)>;
const Act usual_sum = [](int, gyreComm_t comm) { return sum(2, gyreFloat, gyreSum, comm); };
const Act usual_barrier = [](int, gyreComm_t comm) { return gyreBarrier(comm, nullptr); };
const Act in_turn = [](int, gyreComm_t comm) {
  for (std::size_t count = 1; count < 4; ++count)
    if (const gyreResult_t result = sum(count, gyreFloat, gyreSum, comm); result != gyreSuccess)
      return result;
  return gyreBarrier(comm, nullptr);
};
const Act usual_messages = [](int rank, gyreComm_t comm) { return ping_pong(rank, comm); };

void expect_repeated(const Act& act, int rank, gyreComm_t comm, Complaints& complaints) {
  for (int i = 0; i < 20; ++i)
    complaints.expect(act(rank, comm) == gyreSuccess, gyreGetLastError(comm));
}

}  // namespace

TEST_CASE("an abort by another thread ends a small call that waits, whenever it comes", "[comm]") {
  const Act waiting[] = {usual_sum, usual_barrier,
                         [](int, gyreComm_t comm) { return receive(2, gyreFloat, 0, comm, 1); }};
  const Act before[] = {usual_sum, usual_barrier, usual_messages};
  for (const std::size_t kind : {0, 1, 2})
    for (const int delay_us : {0, 2, 10, 30, 100, 1000, 10'000}) {
      std::atomic<bool> is_over{false};
      on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
        expect_repeated(before[kind], rank, comm, complaints);
        if (rank == 1) {
          while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return (void)gyreCommAbort(comm);
        }
        std::atomic<bool> has_begun{false};
        gyreResult_t result = gyreSuccess;
        std::thread caller([&] {
          has_begun = true;
          result = waiting[kind](0, comm);
        });
        while (!has_begun) std::this_thread::yield();
        const auto start = Clock::now();
        while (Clock::now() - start < std::chrono::microseconds(delay_us)) continue;
        complaints.expect(gyreCommAbort(comm) == gyreSuccess, gyreGetLastError(nullptr));
        caller.join();
        complaints.expect(seconds_since(start) < 3, "the call outlived the abort");
        complaints.expect(result == gyreAborted || result == gyreInvalidArgument,
                          gyreGetErrorString(result));
        is_over = true;
      });
    }
}

TEST_CASE("small calls end when another thread destroys their communicator", "[comm]") {
  for (const Act& act : {usual_sum, usual_barrier})
    for (int round = 0; round < 30; ++round)
      on_ranks(1, [&](int rank, gyreComm_t comm, Complaints& complaints) {
        std::atomic<int> calls{0};
        std::thread destroyer([&] {
          while (calls < 5 + round) std::this_thread::yield();
          // Refused while a call is inside.
          gyreResult_t destroyed = gyreInvalidUsage;
          while (destroyed == gyreInvalidUsage) destroyed = gyreCommDestroy(comm);
          complaints.expect(destroyed == gyreSuccess, gyreGetErrorString(destroyed));
        });
        gyreResult_t result = gyreSuccess;
        for (; result == gyreSuccess || result == gyreInvalidUsage; ++calls)
          result = act(rank, comm);
        destroyer.join();
        complaints.expect(result == gyreInvalidArgument, gyreGetErrorString(result));
      });
}

TEST_CASE("a call that differs from those before it is told on both ranks", "[mismatch]") {
  struct Odd {
    const char* name;
    Act before, odd;
    std::vector<const char*> words;
  };
  const Odd kinds[] = {
      {"count",
       usual_sum,
       [](int, gyreComm_t comm) { return sum(3, gyreFloat, gyreSum, comm); },
       {"of 2 float (sum)", "of 3 float (sum)"}},
      {"type",
       usual_sum,
       [](int, gyreComm_t comm) { return sum(2, gyreInt32, gyreSum, comm); },
       {"2 float", "2 int32"}},
      {"op",
       usual_sum,
       [](int, gyreComm_t comm) { return sum(2, gyreFloat, gyreMax, comm); },
       {"(sum)", "(max)"}},
      {"function", usual_sum, usual_barrier, {"gyreAllReduce", "gyreBarrier"}},
      {"one of several",
       in_turn,
       [](int, gyreComm_t comm) {
         (void)sum(1, gyreFloat, gyreSum, comm);
         return sum(3, gyreFloat, gyreSum, comm);
       },
       {"of 2 float (sum)", "of 3 float (sum)"}},
      {"order",
       in_turn,
       [](int, gyreComm_t comm) { return gyreBarrier(comm, nullptr); },
       {"of 1 float (sum)", "gyreBarrier"}},
      {"long message",
       usual_messages,
       [](int rank, gyreComm_t comm) { return ping_pong(rank, comm, 3); },
       {"2 of float", "3 of float"}},
  };
  for (const Odd& kind : kinds)
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      expect_repeated(kind.before, rank, comm, complaints);
      const auto start = Clock::now();
      gyreResult_t result = (rank == 1 ? kind.odd : kind.before)(rank, comm);
      if (result == gyreSuccess) result = gyreBarrier(comm, nullptr);
      const std::string text = gyreGetLastError(comm);
      const std::string who = std::string(kind.name) + ", rank " + std::to_string(rank) + ": ";
      complaints.expect(result == gyreMismatch, who + text);
      for (const char* word : kind.words) complaints.expect(mentions(text, word), who + text);
      complaints.expect(seconds_since(start) < 3, who + "it took too long");
    });
}

// More kinds than a communicator keeps, in an order that all ranks share.
TEST_CASE("small calls of many kinds in any order give the right values", "[comm]") {
  const int n = GENERATE(2, 3, 5);
  on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::uint32_t state = 7;
    for (int i = 0; i < 2000; ++i) {
      state = state * 1664525 + 1013904223;
      const int kind = static_cast<int>(state >> 16) % (i % 500 < 250 ? 5 : 13);
      const int root = kind % n;
      std::array<int, 16> in{}, out{};
      in.fill(rank + i);
      int expected = n * (n - 1) / 2 + n * i;
      gyreResult_t result = gyreSuccess;
      if (kind == 0) {
        result = gyreBarrier(comm, nullptr);
        out[0] = expected;
      } else if (kind < 4) {
        const auto count = static_cast<std::size_t>(kind);
        result = gyreAllReduce(in.data(), out.data(), count, gyreInt32, gyreSum, comm, nullptr);
      } else if (kind == 4) {
        out = in;
        result = gyreAllReduce(out.data(), out.data(), 1, gyreInt32, gyreMax, comm, nullptr);
        expected = n - 1 + i;
      } else if (kind < 8) {
        result = gyreBroadcast(in.data(), out.data(), 2, gyreInt32, root, comm, nullptr);
        expected = root + i;
      } else if (kind < 10) {
        result = gyreReduce(in.data(), out.data(), 1, gyreInt32, gyreSum, root, comm, nullptr);
        if (rank != root) out[0] = expected;
      } else if (kind == 10) {
        result = gyreAllGather(in.data(), out.data(), 1, gyreInt32, comm, nullptr);
        out[0] = out[static_cast<std::size_t>(n - 1)];
        expected = n - 1 + i;
      } else if (kind == 11) {
        result = gyreReduceScatter(in.data(), out.data(), 2, gyreInt32, gyreSum, comm, nullptr);
      } else {
        result = gyreAlltoAll(in.data(), out.data(), 1, gyreInt32, comm, nullptr);
        expected = i;
      }
      complaints.expect(result == gyreSuccess && out[0] == expected,
                        "call " + std::to_string(i) + " of kind " + std::to_string(kind) + ": " +
                            std::to_string(out[0]) + " " + gyreGetLastError(comm));
      if (!complaints.none_yet()) return;
    }
  });
}

// Short and long, by few and by many lines, with and without tags.
TEST_CASE("messages of many kinds in any order bring the right values", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::uint32_t state = 11;
    std::vector<int> in(400), out(400);
    for (int i = 0; i < 3000; ++i) {
      // Some kinds many times on end, others in turn.
      if (i % 40 < 20) state = state * 1664525 + 1013904223;
      const std::size_t count = std::array{0, 1, 2, 10, 11, 100, 400}[(state >> 16) % 7];
      const int tag = static_cast<int>(state >> 24) % 2;
      const int sender = i % 3 == 0 ? 1 : 0;
      in[0] = i;
      if (count > 0) in[count - 1] = -i;
      gyreResult_t result = gyreSuccess;
      int source = -1, received_tag = -1;
      if (rank == sender)
        result = gyreSendTagged(in.data(), count, gyreInt32, 1 - rank, tag, comm, nullptr);
      else
        result =
            gyreRecvTagged(out.data(), count, gyreInt32, 1 - rank, i % 5 == 0 ? GYRE_ANY_TAG : tag,
                           &source, &received_tag, comm, nullptr);
      const bool is_right =
          rank == sender ||
          (source == sender && received_tag == tag &&
           std::equal(in.begin(), in.begin() + static_cast<int>(count), out.begin()));
      complaints.expect(result == gyreSuccess && is_right,
                        "message " + std::to_string(i) + ": " + gyreGetLastError(comm));
      if (!complaints.none_yet()) return;
    }
  });
}

// Groups that are alike, that begin alike, and others; each message with its own number.
TEST_CASE("short groups of many kinds in any order bring the right values", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::uint32_t state = 5;
    std::array<std::vector<int>, 3> in, out;
    for (std::vector<int>& one : in) one.resize(20'000);
    for (std::vector<int>& one : out) one.resize(20'000);
    for (int i = 0; i < 3000 && complaints.none_yet(); ++i) {
      if (i % 40 < 30) state = state * 1664525 + 1013904223;
      const int messages = 1 + static_cast<int>((state >> 16) % 3);
      const bool both = (state >> 20) % 4 != 0, tagged = (state >> 24) % 4 == 0;
      const std::size_t count = std::array{2, 2, 100, 20'000}[(state >> 26) % 4];
      gyreResult_t result = gyreGroupStart();
      for (int k = 0; k < messages; ++k) {
        const auto of_message = static_cast<std::size_t>(k);
        in[of_message][0] = in[of_message][count - 1] = 10 * i + k + rank;
        out[of_message][0] = out[of_message][count - 1] = -1;
        const int tag = tagged ? 2 - k : 0;
        if (both || rank == 0)
          result = std::max(result, gyreSendTagged(in[of_message].data(), count, gyreInt32,
                                                   1 - rank, tag, comm, nullptr));
        if (both || rank == 1)
          result = std::max(result, gyreRecvTagged(out[of_message].data(), count, gyreInt32,
                                                   1 - rank, tag, nullptr, nullptr, comm, nullptr));
      }
      result = std::max(result, gyreGroupEnd());
      complaints.expect(result == gyreSuccess, gyreGetLastError(comm));
      for (int k = 0; k < messages && (both || rank == 1); ++k) {
        const std::vector<int>& got = out[static_cast<std::size_t>(k)];
        const int wanted = 10 * i + k + 1 - rank;
        complaints.expect(got[0] == wanted && got[count - 1] == wanted,
                          "message " + std::to_string(k) + " of group " + std::to_string(i));
      }
    }
  });
}

// More than a connection and its socket hold, so that sends have to wait until they are read.
TEST_CASE("short sends by a wire wait for a late reader, and nothing is lost", "[comm]") {
  const WithVariables variables(Variables{{"GYRE_TRANSPORT", "tcp"}});
  constexpr std::size_t count = 8 << 10;
  constexpr int messages = 1000;
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::vector<int> values(count);
    expect_repeated(usual_messages, rank, comm, complaints);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < messages && complaints.none_yet(); ++i) {
      if (rank == 0) values.assign(count, i);
      const gyreResult_t result = rank == 0
                                      ? gyreSend(values.data(), count, gyreInt32, 1, comm, nullptr)
                                      : gyreRecv(values.data(), count, gyreInt32, 0, comm, nullptr);
      complaints.expect(result == gyreSuccess, gyreGetLastError(comm));
      complaints.expect(std::ranges::count(values, i) == static_cast<std::ptrdiff_t>(count),
                        "message " + std::to_string(i) + " is damaged");
    }
    expect_repeated(usual_sum, rank, comm, complaints);
  });
}

TEST_CASE("a short send by a wire that nobody reads is over in time, and names the peer",
          "[comm]") {
  const WithVariables variables(Variables{{"GYRE_TRANSPORT", "tcp"}});
  std::atomic<bool> is_over{false};
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    expect_repeated(usual_messages, rank, comm, complaints);
    while (rank == 1 && !is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank == 1) return;
    complaints.expect(gyreCommSetTimeout(comm, 500) == gyreSuccess, gyreGetLastError(comm));
    const std::vector<int> values(8 << 10);
    gyreResult_t result = gyreSuccess;
    const auto start = Clock::now();
    while (result == gyreSuccess && seconds_since(start) < 20)
      result = gyreSend(values.data(), values.size(), gyreInt32, 1, comm, nullptr);
    complaints.expect(result == gyreTimeout, gyreGetLastError(comm));
    complaints.expect(mentions(gyreGetLastError(comm), "rank 1"), gyreGetLastError(comm));
    is_over = true;
  });
}

TEST_CASE("a bad argument after good calls is an error, and the next call is good", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::array<float, 4> in{1, 2, 3, 4}, out{};
    float* const beyond = reinterpret_cast<float*>(UINTPTR_MAX - 7);
    const auto refuses = [&](gyreResult_t result, const char* what) {
      complaints.expect(result == gyreInvalidArgument, what);
    };
    for (int i = 0; i < 3; ++i) {
      expect_repeated(usual_sum, rank, comm, complaints);
      refuses(gyreAllReduce(nullptr, out.data(), 2, gyreFloat, gyreSum, comm, nullptr), "null");
      refuses(gyreAllReduce(in.data(), nullptr, 2, gyreFloat, gyreSum, comm, nullptr), "null out");
      refuses(gyreAllReduce(beyond, out.data(), 2, gyreFloat, gyreSum, comm, nullptr), "beyond");
      refuses(gyreAllReduce(&in[0], &in[1], 2, gyreFloat, gyreSum, comm, nullptr), "overlap");
      expect_repeated(usual_messages, rank, comm, complaints);
      refuses(gyreSend(nullptr, 2, gyreFloat, 1 - rank, comm, nullptr), "null to send");
      refuses(gyreSend(beyond, 2, gyreFloat, 1 - rank, comm, nullptr), "beyond to send");
      refuses(gyreRecv(nullptr, 2, gyreFloat, 1 - rank, comm, nullptr), "null to receive");
      refuses(gyreSend(in.data(), 2, gyreFloat, 2, comm, nullptr), "peer");
      refuses(gyreSendTagged(in.data(), 2, gyreFloat, 1 - rank, -1, comm, nullptr), "tag");
    }
    expect_repeated(usual_sum, rank, comm, complaints);
    expect_repeated(usual_messages, rank, comm, complaints);
  });
}

TEST_CASE("a peer that leaves after small calls is told to who waits for it", "[comm]") {
  for (const Act& act : {usual_sum, usual_barrier, usual_messages})
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      expect_repeated(act, rank, comm, complaints);
      if (rank == 1) return;  // it destroys its communicator
      const auto start = Clock::now();
      const gyreResult_t result = act(rank, comm);
      complaints.expect(result == gyreMismatch, gyreGetLastError(comm));
      complaints.expect(mentions(gyreGetLastError(comm), "has left"), gyreGetLastError(comm));
      complaints.expect(seconds_since(start) < 3, "it took too long");
    });
}

TEST_CASE("small calls keep their order with calls on streams and in groups", "[comm]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    for (const unsigned flags : {0U, static_cast<unsigned>(GYRE_STREAM_BY_CALLER)}) {
      gyreStream_t stream = nullptr;
      complaints.expect(gyreStreamCreateWithFlags(&stream, flags) == gyreSuccess, "no stream");
      int total = 0, expected = 0;  // each call sums it over both ranks
      for (int i = 0; i < 400; ++i) {
        const bool queues = i % 7 == 3, groups = i % 11 == 5;
        if (i % 20 == 0) {
          complaints.expect(gyreStreamSynchronize(stream) == gyreSuccess, "stream");
          total = rank + 1;
        }
        expected = i % 20 == 0 ? 3 : 2 * expected;
        if (groups) (void)gyreGroupStart();
        complaints.expect(gyreAllReduce(&total, &total, 1, gyreInt32, gyreSum, comm,
                                        queues ? stream : nullptr) == gyreSuccess,
                          gyreGetLastError(comm));
        if (groups) complaints.expect(gyreGroupEnd() == gyreSuccess, gyreGetLastError(comm));
        // One without a stream comes after what is queued.
        if (!queues)
          complaints.expect(total == expected, "a wrong sum in call " + std::to_string(i));
      }
      complaints.expect(gyreStreamDestroy(stream) == gyreSuccess, "the stream stays");
    }
  });
}

}  // namespace short_calls_test
