// Sends and receives through the C API, ranks as threads: order, tags, any source, groups, streams,
// sends to the own rank, and ends that do not match.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/call_paths.h"
#include "tests/support/comm/elements.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

namespace transfer_test {

using namespace gyre::tests;

namespace {

using Ints = std::vector<std::int32_t>;

Ints numbers(std::size_t count, int from, int to, int round = 0) {
  Ints made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = static_cast<std::int32_t>(
        hashed(static_cast<std::uint64_t>(from * 100 + to), static_cast<std::uint64_t>(round), i));
  return made;
}

gyreResult_t send(const Ints& data, int peer, gyreComm_t comm, int tag = 0) {
  return gyreSendTagged(data.data(), data.size(), gyreInt32, peer, tag, comm, nullptr);
}

gyreResult_t receive(Ints& data, int peer, gyreComm_t comm, int tag = 0) {
  return gyreRecvTagged(data.data(), data.size(), gyreInt32, peer, tag, nullptr, nullptr, comm,
                        nullptr);
}

bool is_settled(gyreComm_t comm) {
  gyreResult_t state = gyreInProgress;
  while (gyreCommGetAsyncError(comm, &state) == gyreSuccess && state == gyreInProgress)
    std::this_thread::yield();
  return state == gyreSuccess;
}

std::vector<Variables> paths() {
  std::vector<Variables> all = {{{"GYRE_TRANSPORT", "shm"}},
                                {{"GYRE_TRANSPORT", "tcp"}},
                                {{"GYRE_TRANSPORT", "tcp"}, {"GYRE_TCP_SECURITY", "tls"}}};
  if (has_active_rdma_port()) all.push_back({{"GYRE_TRANSPORT", "rdma"}});
  if (has_ucx()) all.push_back({{"GYRE_TRANSPORT", "ucx"}});
  return all;
}

}  // namespace

TEST_CASE("everybody sends to everybody in one group, whatever the lengths", "[p2p]") {
  for (const Variables& path : paths())
    for (const int n : {1, 2, 3, 5}) {
      const WithVariables variables(path);
      on_ranks(n, [&](int rank, gyreComm_t comm, Complaints& complaints) {
        for (const std::size_t base : {0UL, 1UL, 1000UL, 200'000UL}) {
          const auto length = [&](int from, int to) {
            return base == 0 ? 0 : base + static_cast<std::size_t>(from * 7 + to);
          };
          std::vector<Ints> in, out;
          (void)gyreGroupStart();
          for (int peer = 0; peer < n; ++peer) {
            out.push_back(numbers(length(rank, peer), rank, peer));
            in.emplace_back(length(peer, rank));
            (void)send(out.back(), peer, comm);
            (void)receive(in.back(), peer, comm);
          }
          if (gyreGroupEnd() != gyreSuccess) return complaints.add(gyreGetLastError(comm));
          for (int peer = 0; peer < n; ++peer)
            complaints.expect(
                in[static_cast<std::size_t>(peer)] == numbers(length(peer, rank), peer, rank),
                "wrong data from rank " + std::to_string(peer));
        }
      });
    }
}

// Short messages take lines and longer ones slots, one by one and mixed with what nobody has asked
// for yet.
TEST_CASE("calls alone keep the order of messages of all lengths and tags", "[p2p]") {
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      const int peer = 1 - rank;
      for (int round = 0; round < 150; ++round) {
        // Of 4 bytes: 40 and 544 are limits, and so are those of one slot and of all.
        const auto count = static_cast<std::size_t>(round + round % 50 / 49 * 1000 * round);
        Ints late(count), first(count), last(count);
        const auto expect = [&](const Ints& data, int number, const char* what) {
          complaints.expect(data == numbers(count, peer, rank, 3 * round + number), what);
        };
        const auto send_all = [&] {
          (void)send(numbers(count, rank, peer, 3 * round), peer, comm);
          (void)send(numbers(count, rank, peer, 3 * round + 1), peer, comm, 7);
          (void)send(numbers(count, rank, peer, 3 * round + 2), peer, comm);
        };
        if (rank == 0) send_all();
        // The one with the tag first: the others are kept, or not here yet.
        const gyreResult_t result = receive(late, peer, comm, 7);
        if (result != gyreSuccess) return complaints.add(gyreGetLastError(comm));
        expect(late, 1, "wrong data with a tag");
        int source = -1, tag = -1;
        (void)gyreRecvTagged(first.data(), count, gyreInt32, peer, GYRE_ANY_TAG, &source, &tag,
                             comm, nullptr);
        complaints.expect(source == peer && tag == 0, "wrong source or tag");
        expect(first, 0, "wrong data of the first");
        (void)receive(last, peer, comm);
        expect(last, 2, "wrong data of the last");
        if (rank == 1) send_all();
      }
    });
  }
}

// A group takes lines and slots at once; one message that finds no room there, or one too many,
// sends all the long way.
TEST_CASE("groups of short messages keep their order, also with longer ones", "[p2p]") {
  // Of 4 bytes.
  constexpr std::size_t lengths[] = {2, 0, 9, 108, 1, 5000, 109, 7, 40, 3, 40'000, 140'000};
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      for (int round = 0; round < 120; ++round) {
        const int messages = 1 + round % 7 / 2 + round % 31 / 28 * 3;  // to each
        const auto count = [&](int i) {
          return lengths[static_cast<std::size_t>(round + i) % (round % 3 == 0 ? 12 : 6)];
        };
        std::vector<Ints> out, in;
        for (int i = 0; i < messages; ++i)
          for (int peer = 0; peer < 3; ++peer) {
            out.push_back(numbers(count(i), rank, peer, i));
            in.emplace_back(count(i));
          }
        (void)gyreGroupStart();
        for (int i = 0; i < messages; ++i)
          for (int peer = 0; peer < 3; ++peer) {
            const auto place = static_cast<std::size_t>(3 * i + peer);
            (void)send(out[place], peer, comm, i % 2);
            (void)receive(in[place], peer, comm, i % 2);
          }
        complaints.expect(gyreGroupEnd() == gyreSuccess, gyreGetLastError(comm));
        for (int i = 0; i < messages; ++i)
          for (int peer = 0; peer < 3; ++peer)
            complaints.expect(
                in[static_cast<std::size_t>(3 * i + peer)] == numbers(count(i), peer, rank, i),
                "wrong data of message " + std::to_string(i) + " in group " +
                    std::to_string(round));
      }
    });
  }
}

TEST_CASE("a group of short messages waits for peers that are late, or ends with an error",
          "[p2p]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto swap = [&](std::size_t count) {
      const Ints out(count, rank);
      Ints in(count, -1);
      (void)gyreGroupStart();
      (void)send(out, 1 - rank, comm);
      (void)receive(in, 1 - rank, comm);
      const gyreResult_t result = gyreGroupEnd();
      complaints.expect(result != gyreSuccess || in == Ints(count, 1 - rank), "wrong data");
      return result;
    };
    for (int i = 0; i < 20; ++i) {
      if (rank == i % 2 && i > 5) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      complaints.expect(swap(2) == gyreSuccess, gyreGetLastError(comm));
    }
    // A refused call spoils the group, and its message is not sent.
    Ints in(2);
    (void)gyreGroupStart();
    (void)send(Ints(2, 77), 1 - rank, comm);
    complaints.expect(gyreSend(in.data(), 2, gyreInt32, 2, comm, nullptr) == gyreInvalidArgument,
                      "it took a peer that is none");
    complaints.expect(gyreGroupEnd() == gyreInvalidArgument, "it was carried out");
    complaints.expect(swap(3) == gyreSuccess, gyreGetLastError(comm));
    // Of another length: both hear of both.
    complaints.expect(swap(rank == 0 ? 2 : 3) == gyreMismatch, gyreGetLastError(comm));
  });
}

TEST_CASE("messages of a pair arrive in the order they were sent", "[p2p]") {
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
      for (int round = 0; round < 200; ++round) {
        const std::size_t count = static_cast<std::size_t>(round * round % 977);
        Ints data = numbers(count, 0, 1, round);
        if (rank == 0) {
          complaints.expect(send(data, 1, comm) == gyreSuccess, gyreGetLastError(comm));
        } else {
          Ints got(count);
          complaints.expect(receive(got, 0, comm) == gyreSuccess, gyreGetLastError(comm));
          complaints.expect(got == data, "message " + std::to_string(round) + " is another");
        }
      }
    });
  }
}

TEST_CASE("a receive takes the first message with its tag, however many wait", "[p2p]") {
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
      const int tags[] = {3, 1, 2, 1};
      const std::size_t counts[] = {5, 300'000, 0, 17};
      if (rank == 0) {
        (void)gyreGroupStart();
        std::vector<Ints> all;
        for (int i = 0; i < 4; ++i) all.push_back(numbers(counts[i], 0, 1, i));
        for (int i = 0; i < 4; ++i) (void)send(all[static_cast<std::size_t>(i)], 1, comm, tags[i]);
        return complaints.expect(gyreGroupEnd() == gyreSuccess, gyreGetLastError(comm));
      }
      for (const int i : {2, 1, 3, 0}) {  // the two of tag 1 in their order
        Ints got(counts[i]);
        complaints.expect(receive(got, 0, comm, tags[i]) == gyreSuccess, gyreGetLastError(comm));
        complaints.expect(got == numbers(counts[i], 0, 1, i), "another message");
      }
    });
  }
}

TEST_CASE("a receive from any source learns who it was and which tag", "[p2p]") {
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    constexpr int n = 5;
    on_ranks(n, [](int rank, gyreComm_t comm, Complaints& complaints) {
      if (rank != 0) {
        for (int round = 0; round < 3; ++round)
          complaints.expect(
              send(numbers(1000, rank, 0, round), 0, comm, 10 * rank + round) == gyreSuccess,
              gyreGetLastError(comm));
        return;
      }
      std::vector<int> rounds(n, 0);
      for (int i = 0; i < 3 * (n - 1); ++i) {
        Ints got(1000);
        int source = -7, tag = -7;
        if (gyreRecvTagged(got.data(), got.size(), gyreInt32, GYRE_ANY_SOURCE, GYRE_ANY_TAG,
                           &source, &tag, comm, nullptr) != gyreSuccess)
          return complaints.add(gyreGetLastError(comm));
        if (source < 1 || source >= n) return complaints.add("no rank: " + std::to_string(source));
        const int round = rounds[static_cast<std::size_t>(source)]++;
        complaints.expect(tag == 10 * source + round, "tag " + std::to_string(tag));
        complaints.expect(got == numbers(1000, source, 0, round), "another rank's data");
      }
    });
  }
}

TEST_CASE("receives from one rank and from any take its messages in the receives' order", "[p2p]") {
  const bool anyone_first = GENERATE(true, false);
  const bool sends_first = GENERATE(true, false);  // else the receives are there before
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto wait = [](bool waits) {
      if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    wait(sends_first == (rank == 0));
    if (rank == 1) {
      for (int round = 0; round < 4; ++round)
        complaints.expect(send(numbers(50, 1, 0, round), 0, comm, round / 2) == gyreSuccess,
                          gyreGetLastError(comm));
      return;
    }
    std::vector<Ints> got(4, Ints(50));
    (void)gyreGroupStart();
    for (const int i : {0, 1, 2, 3}) {
      const bool from_anyone = (i % 2 == 0) == anyone_first;
      (void)receive(got[static_cast<std::size_t>(i)], from_anyone ? GYRE_ANY_SOURCE : 1, comm,
                    from_anyone ? GYRE_ANY_TAG : i / 2);
    }
    complaints.expect(gyreGroupEnd() == gyreSuccess, gyreGetLastError(comm));
    for (int i = 0; i < 4; ++i)
      complaints.expect(got[static_cast<std::size_t>(i)] == numbers(50, 1, 0, i),
                        "receive " + std::to_string(i) + " has another's message");
  });
}

TEST_CASE("sends and receives of a group go on beside its collectives", "[p2p]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    // More than fits the slots, in opposite order on the two ranks.
    Ints out = numbers(400'000, rank, 1 - rank), in(out.size()), sum(1, 1);
    (void)gyreGroupStart();
    if (rank == 0) (void)send(out, 1, comm);
    (void)gyreAllReduce(sum.data(), sum.data(), 1, gyreInt32, gyreSum, comm, nullptr);
    (void)receive(in, 1 - rank, comm);
    if (rank == 1) (void)send(out, 0, comm);
    complaints.expect(gyreGroupEnd() == gyreSuccess, gyreGetLastError(comm));
    complaints.expect(in == numbers(in.size(), 1 - rank, rank) && sum[0] == 2, "wrong data");
  });
}

TEST_CASE("a group on a stream is carried out together, in whatever order a rank called", "[p2p]") {
  for (const bool blocking : {true, false})
    on_ranks(2, [=](int rank, gyreComm_t parent, Complaints& complaints) {
      gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
      config.timeoutMs = 5000;
      config.blocking = blocking ? 1 : 0;
      gyreStream_t stream = nullptr;
      if (blocking) (void)gyreStreamCreate(&stream);
      gyreComm_t comm = nullptr, other = nullptr;
      for (gyreComm_t* child : {&comm, &other})
        if (gyreCommSplit(parent, 0, rank, child, &config) != gyreSuccess)
          return complaints.add(gyreGetLastError(parent));
      for (int round = 0; round < 5; ++round) {
        Ints out = numbers(100'000, rank, 1 - rank, round), in(out.size()), sum(1, 1), most(1);
        const auto transfer = [&] {
          (void)gyreSend(out.data(), out.size(), gyreInt32, 1 - rank, comm, stream);
          (void)gyreRecv(in.data(), in.size(), gyreInt32, 1 - rank, comm, stream);
        };
        const auto greatest = [&] {
          (void)gyreAllReduce(&rank, most.data(), 1, gyreInt32, gyreMax, other, stream);
        };
        (void)gyreGroupStart();
        if (rank == 0) transfer(), greatest();
        (void)gyreAllReduce(sum.data(), sum.data(), 1, gyreInt32, gyreSum, comm, stream);
        if (rank == 1) greatest(), transfer();
        (void)gyreGroupEnd();
        if (blocking) (void)gyreStreamSynchronize(stream);
        complaints.expect(is_settled(comm) && is_settled(other), gyreGetLastError(comm));
        complaints.expect(in == numbers(in.size(), 1 - rank, rank, round), "wrong data");
        complaints.expect(sum[0] == 2 && most[0] == 1, "wrong sums");
      }
      if (blocking) (void)gyreStreamDestroy(stream);
      (void)gyreCommDestroy(comm);
      (void)gyreCommDestroy(other);
    });
}

TEST_CASE("sends and receives take their places on streams", "[p2p]") {
  on_ranks(3, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreStream_t stream = nullptr;
    (void)gyreStreamCreate(&stream);
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    std::vector<Ints> out, in;
    for (int round = 0; round < 20; ++round) {
      out.push_back(numbers(5000, rank, next, round));
      in.emplace_back(5000);
    }
    for (std::size_t round = 0; round < 20; ++round) {
      (void)gyreGroupStart();
      (void)gyreSend(out[round].data(), 5000, gyreInt32, next, comm, stream);
      (void)gyreRecv(in[round].data(), 5000, gyreInt32, previous, comm, stream);
      (void)gyreGroupEnd();
    }
    complaints.expect(gyreStreamSynchronize(stream) == gyreSuccess, gyreGetLastError(comm));
    for (int round = 0; round < 20; ++round)
      complaints.expect(in[static_cast<std::size_t>(round)] == numbers(5000, previous, rank, round),
                        "wrong data");
    (void)gyreStreamDestroy(stream);
  });
}

// Each rank sends to all before it receives anything, lets a collective pass, and receives in the
// other order: what one stream waits for holds up no other stream.
TEST_CASE("sends and receives on streams of their own go on side by side", "[p2p]") {
  constexpr int rounds = 6, n = 3;
  const auto exchange = [](int rank, gyreComm_t comm, Complaints& complaints) {
    std::vector<gyreStream_t> streams(2 * n * rounds + 1);
    for (gyreStream_t& stream : streams) (void)gyreStreamCreate(&stream);
    auto next = streams.begin();
    std::vector<Ints> out, in;
    for (int round = 0; round < rounds; ++round)
      for (int peer = 0; peer < n; ++peer) {
        const std::size_t count = round % 2 == 0 ? 150'000 : 10;
        out.push_back(numbers(count, rank, peer, round));
        in.emplace_back(count);
        (void)gyreSendTagged(out.back().data(), count, gyreInt32, peer, round, comm, *next++);
      }
    int sum = 1;
    (void)gyreAllReduce(&sum, &sum, 1, gyreInt32, gyreSum, comm, *next);
    complaints.expect(gyreStreamSynchronize(*next++) == gyreSuccess && sum == n,
                      gyreGetLastError(comm));
    for (int round = rounds - 1; round >= 0; --round)
      for (int peer = 0; peer < n; ++peer) {
        Ints& data = in[static_cast<std::size_t>(round * n + peer)];
        (void)gyreRecvTagged(data.data(), data.size(), gyreInt32, peer, round, nullptr, nullptr,
                             comm, *next++);
      }
    for (gyreStream_t stream : streams)
      complaints.expect(gyreStreamSynchronize(stream) == gyreSuccess, gyreGetLastError(comm));
    for (int round = 0; round < rounds; ++round)
      for (int peer = 0; peer < n; ++peer) {
        const Ints& data = in[static_cast<std::size_t>(round * n + peer)];
        complaints.expect(data == numbers(data.size(), peer, rank, round), "wrong data");
      }
    for (gyreStream_t stream : streams) (void)gyreStreamDestroy(stream);
  };
  for (Variables path : paths()) {
    path["GYRE_TIMEOUT"] = "10";
    const WithVariables variables(path);
    on_ranks(n, exchange);
  }
}

TEST_CASE("a rank alone receives from any source what it sends itself later", "[p2p]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    std::array<gyreStream_t, 2> streams{};
    for (gyreStream_t& stream : streams) (void)gyreStreamCreate(&stream);
    const Ints sent = numbers(1000, 0, 0);
    Ints got(sent.size());
    int source = -7;
    (void)gyreRecvTagged(got.data(), got.size(), gyreInt32, GYRE_ANY_SOURCE, 0, &source, nullptr,
                         comm, streams[0]);
    // Longer than a receive waits before it asks whether anybody is left.
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    (void)gyreSend(sent.data(), sent.size(), gyreInt32, 0, comm, streams[1]);
    for (const gyreStream_t stream : streams) {
      complaints.expect(gyreStreamSynchronize(stream) == gyreSuccess, gyreGetLastError(comm));
      (void)gyreStreamDestroy(stream);
    }
    complaints.expect(got == sent && source == 0, "another message");
  });
}

TEST_CASE("more than is kept without a receive ends all, and both ranks are told what to do",
          "[p2p]") {
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreResult_t result = gyreSuccess;
    if (rank == 0) {
      Ints got(1);
      result = receive(got, 1, comm, 1);
    } else {
      const std::vector<std::uint8_t> sent((256U << 20) + 1);
      result = gyreSendTagged(sent.data(), sent.size(), gyreUint8, 0, 7, comm, nullptr);
    }
    const std::string text = gyreGetLastError(comm);
    complaints.expect(result == gyreMismatch, text);
    for (const char* part : {"from rank 1 with tag 7", "take 268435457 bytes",
                             "at most 268435456 bytes are kept", "begin their receives earlier"})
      complaints.expect(mentions(text, part), text);
  });
}

TEST_CASE("ends that do not fit are told what both called", "[p2p]") {
  struct Misfit {
    std::size_t count;
    gyreDataType_t type;
    std::string text;
  };
  for (const Misfit& misfit : {Misfit{99, gyreInt32,
                                      "rank 0 sends 100 of int32, and this rank "
                                      "receives 99 of int32"},
                               Misfit{100, gyreFloat, "receives 100 of float"},
                               Misfit{0, gyreInt32, "receives 0 of int32"}})
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      Ints data(1'000'000);  // more than a link holds
      if (rank == 1) {
        complaints.expect(
            gyreRecv(data.data(), misfit.count, misfit.type, 0, comm, nullptr) == gyreMismatch,
            "the receiver takes it");
        return complaints.expect(mentions(gyreGetLastError(comm), misfit.text),
                                 gyreGetLastError(comm));
      }
      (void)gyreSend(data.data(), 100, gyreInt32, 1, comm, nullptr);
      // It had left already; the next call tells.
      complaints.expect(
          gyreSend(data.data(), data.size(), gyreInt32, 1, comm, nullptr) == gyreMismatch,
          "the sender is not told");
      complaints.expect(mentions(gyreGetLastError(comm), misfit.text), gyreGetLastError(comm));
    });
}

TEST_CASE("a send that nobody receives ends at its deadline and names the peer", "[p2p]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  on_ranks(
      2,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        Ints data(1'000'000);
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        complaints.expect(
            gyreSend(data.data(), data.size(), gyreInt32, 1, comm, nullptr) == gyreTimeout,
            "no timeout");
        complaints.expect(mentions(gyreGetLastError(comm), "rank 1"), gyreGetLastError(comm));
      },
      &config);
}

TEST_CASE("peers and tags that cannot be are refused", "[p2p]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    Ints data(1);
    const auto refused = [&](gyreResult_t result, const std::string& word) {
      complaints.expect(result == gyreInvalidArgument, word + " is taken");
      complaints.expect(mentions(gyreGetLastError(comm), word), gyreGetLastError(comm));
    };
    refused(send(data, 1, comm), "peer 1");
    refused(send(data, -1, comm), "peer -1");
    refused(receive(data, -2, comm), "peer -2");
    refused(send(data, 0, comm, -1), "tag -1");
    refused(receive(data, 0, comm, -2), "tag -2");
    refused(gyreSend(nullptr, 1, gyreInt32, 0, comm, nullptr), "sendbuff is NULL");
    refused(gyreRecv(nullptr, 1, gyreInt32, 0, comm, nullptr), "recvbuff is NULL");
  });
}

TEST_CASE("a message without a tag has tag 0", "[p2p]") {
  for (const Variables& path : paths()) {
    const WithVariables variables(path);
    on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
      const Ints first = numbers(100, 0, 1, 0), second = numbers(100, 0, 1, 1);
      if (rank == 0) {
        complaints.expect(
            gyreSend(first.data(), first.size(), gyreInt32, 1, comm, nullptr) == gyreSuccess,
            gyreGetLastError(comm));
        complaints.expect(send(second, 1, comm, 5) == gyreSuccess, gyreGetLastError(comm));
        complaints.expect(send(first, 1, comm, 0) == gyreSuccess, gyreGetLastError(comm));
        return;
      }
      Ints got(100);
      int source = -7, tag = -7;
      complaints.expect(gyreRecvTagged(got.data(), got.size(), gyreInt32, 0, 0, &source, &tag, comm,
                                       nullptr) == gyreSuccess,
                        gyreGetLastError(comm));
      complaints.expect(got == first && source == 0 && tag == 0, "tag " + std::to_string(tag));
      // Not the one of tag 5, which stands before it.
      Ints untagged(100);
      complaints.expect(
          gyreRecv(untagged.data(), untagged.size(), gyreInt32, 0, comm, nullptr) == gyreSuccess,
          gyreGetLastError(comm));
      complaints.expect(untagged == first, "a receive without a tag takes another tag's message");
      complaints.expect(receive(got, 0, comm, 5) == gyreSuccess && got == second, "tag 5 is lost");
    });
  }
}

TEST_CASE("a receive that ends with another one's is told why that one ended", "[p2p]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 1500;
  on_ranks(
      3,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        const auto later = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1000)); };
        if (rank != 0) return later(), later();
        std::array<gyreStream_t, 2> streams{};
        std::array<Ints, 2> got = {Ints(10), Ints(10)};
        std::array<std::string, 2> texts;
        for (gyreStream_t& stream : streams)
          (void)gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER);
        for (std::size_t i = 0; i < 2; ++i) {
          (void)gyreRecv(got[i].data(), got[i].size(), gyreInt32, 1 + static_cast<int>(i), comm,
                         streams[i]);
          if (i == 0) later();  // so that the second one's deadline is far away
        }
        for (std::size_t i = 0; i < 2; ++i) {
          complaints.expect(gyreStreamSynchronize(streams[i]) == gyreTimeout, "no timeout");
          texts[i] = gyreGetLastError(comm);
          complaints.expect(mentions(texts[i], "rank 1") && !mentions(texts[i], "rank 2"),
                            texts[i]);
          complaints.expect(mentions(texts[i], "sends and receives waited"), texts[i]);
        }
        for (const gyreStream_t stream : streams) (void)gyreStreamDestroy(stream);
      },
      &config);
}

}  // namespace transfer_test
