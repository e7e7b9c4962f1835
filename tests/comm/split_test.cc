// Splitting and non-blocking communicators, ranks as threads.
#include "tests/support/base/mentions.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"

#include <chrono>
#include <filesystem>
#include <vector>

namespace split_test {

using namespace gyre::tests;

namespace {

// The sum of 1 over the ranks of a communicator, as a rank sees it; -1 on an error.
int headcount(gyreComm_t comm) {
  int one = 1;
  return gyreAllReduce(&one, &one, 1, gyreInt, gyreSum, comm, nullptr) == gyreSuccess ? one : -1;
}

int rank_in(gyreComm_t comm) {
  int rank = -1;
  (void)gyreCommUserRank(comm, &rank);
  return rank;
}

gyreResult_t settled(gyreComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  gyreResult_t state = gyreInProgress;
  while (state == gyreInProgress && std::chrono::steady_clock::now() < end) {
    if (gyreCommGetAsyncError(comm, &state) != gyreSuccess) return gyreInternalError;
    std::this_thread::yield();
  }
  return state;
}

}  // namespace

TEST_CASE("a split makes one communicator a color, ordered by key", "[split]") {
  for (const char* transport : {"shm", "tcp"}) {
    const WithVariables variables(Variables{{"GYRE_TRANSPORT", transport}});
    constexpr int n = 7;
    on_ranks(n, [](int rank, gyreComm_t comm, Complaints& complaints) {
      const bool apart = rank == 3;
      gyreComm_t child = reinterpret_cast<gyreComm_t>(1);
      // Odd and even ranks, in opposite order; rank 3 in none.
      const gyreResult_t result =
          gyreCommSplit(comm, apart ? GYRE_SPLIT_NOCOLOR : rank % 2, -rank, &child, nullptr);
      if (result != gyreSuccess) return complaints.add(gyreGetLastError(comm));
      if (apart) return complaints.expect(child == nullptr, "a handle without a color");
      const int size = rank % 2 == 0 ? 4 : 2;
      complaints.expect(headcount(child) == size, "the child has another size");
      const int place = rank % 2 == 0 ? (6 - rank) / 2 : rank == 5 ? 0 : 1;
      complaints.expect(rank_in(child) == place,
                        "rank " + std::to_string(rank) + " is " + std::to_string(rank_in(child)));
      complaints.expect(gyreCommDestroy(child) == gyreSuccess, gyreGetLastError(nullptr));
    });
  }
}

TEST_CASE("children outlive their parent and split again", "[split]") {
  on_ranks(8, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreComm_t half = nullptr, quarter = nullptr;
    if (gyreCommSplit(comm, rank / 4, rank, &half, nullptr) != gyreSuccess ||
        gyreCommSplit(half, rank / 2, rank, &quarter, nullptr) != gyreSuccess)
      return complaints.add(gyreGetLastError(nullptr));
    complaints.expect(gyreCommDestroy(comm) == gyreSuccess, "destroying the parent");
    complaints.expect(headcount(half) == 4 && headcount(quarter) == 2, "wrong sizes");
    (void)gyreCommDestroy(half);
    (void)gyreCommDestroy(quarter);
  });
}

TEST_CASE("a rank without data to give or take may leave before the others have connected",
          "[split]") {
  for (const char* transport : {"shm", "tcp"}) {
    const WithVariables variables(Variables{{"GYRE_TRANSPORT", transport}});
    on_ranks(4, [](int rank, gyreComm_t comm, Complaints& complaints) {
      const std::size_t none[4] = {};
      for (int round = 0; round < 100; ++round) {
        gyreComm_t child = nullptr;
        if (gyreCommSplit(comm, 0, rank, &child, nullptr) != gyreSuccess)
          return complaints.add(gyreGetLastError(comm));
        const gyreResult_t result =
            gyreAlltoAllv(nullptr, none, none, nullptr, none, none, gyreFloat, child, nullptr);
        complaints.expect(result == gyreSuccess, gyreGetLastError(child));
        complaints.expect(gyreCommDestroy(child) == gyreSuccess, gyreGetLastError(nullptr));
        if (result != gyreSuccess) return;
      }
    });
  }
}

TEST_CASE("splits of several ranks of one thread complete in a group", "[split]") {
  std::vector<gyreComm_t> parents(6), children(6);
  REQUIRE(gyreCommInitAll(parents.data(), 6, nullptr) == gyreSuccess);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (int rank = 0; rank < 6; ++rank)
    REQUIRE(gyreCommSplit(parents[static_cast<std::size_t>(rank)], rank % 3, 0,
                          &children[static_cast<std::size_t>(rank)], nullptr) == gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  std::vector<int> ones(6, 1);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  for (std::size_t rank = 0; rank < 6; ++rank)
    REQUIRE(gyreAllReduce(&ones[rank], &ones[rank], 1, gyreInt, gyreSum, children[rank], nullptr) ==
            gyreSuccess);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  CHECK(ones == std::vector<int>(6, 2));
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CHECK(rank_in(children[rank]) == static_cast<int>(rank) / 3);
    CHECK(gyreCommDestroy(children[rank]) == gyreSuccess);
    CHECK(gyreCommDestroy(parents[rank]) == gyreSuccess);
  }
}

TEST_CASE("a rank that does not split is named when the deadline passes", "[split]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  on_ranks(
      3,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        gyreComm_t child = nullptr;
        if (rank == 2) return std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        const gyreResult_t result = gyreCommSplit(comm, 0, rank, &child, nullptr);
        complaints.expect(result == gyreTimeout, "no timeout");
        complaints.expect(mentions(gyreGetLastError(comm), "rank 2"), gyreGetLastError(comm));
        complaints.expect(child == nullptr, "a handle");
      },
      &config);
}

// Rank 2 stays away, so that the others wait in the split: for its color, for the id, or for it to
// join. The split has to hear of what becomes of the parent, whose deadline is far away.
TEST_CASE("a split ends at once when its communicator is aborted", "[split]") {
  const int aborter = GENERATE(0, 1, 2);
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::thread other;
    if (rank == aborter)
      other = std::thread([comm] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        (void)gyreCommAbort(comm);
      });
    if (rank != 2) {
      gyreComm_t child = nullptr;
      const auto start = std::chrono::steady_clock::now();
      const gyreResult_t result = gyreCommSplit(comm, 0, rank, &child, nullptr);
      complaints.expect(result == (rank == aborter ? gyreAborted : gyreRemoteError),
                        std::to_string(result));
      complaints.expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(3),
                        "it took long");
    }
    if (other.joinable()) other.join();
    if (rank == 2 && aborter != 2) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
}

TEST_CASE("wrong arguments of a split are refused", "[split]") {
  on_ranks(1, [](int, gyreComm_t comm, Complaints& complaints) {
    gyreComm_t child = nullptr;
    complaints.expect(gyreCommSplit(comm, -2, 0, &child, nullptr) == gyreInvalidArgument, "-2");
    complaints.expect(mentions(gyreGetLastError(comm), "color -2"), gyreGetLastError(comm));
    complaints.expect(gyreCommSplit(comm, 0, 0, nullptr, nullptr) == gyreInvalidArgument, "NULL");
    complaints.expect(gyreCommSplit(nullptr, 0, 0, &child, nullptr) == gyreInvalidArgument, "comm");
  });
}

TEST_CASE("a split that settings rule out breaks nothing", "[split]") {
  const WithVariables variables(
      Variables{{"GYRE_TRANSPORT", "tcp"}, {"GYRE_PROTO", "LL"}, {"GYRE_SOCKET_IFNAME", "lo"}});
  on_ranks(2, [](int rank, gyreComm_t comm, Complaints& complaints) {
    gyreComm_t child = reinterpret_cast<gyreComm_t>(1);
    complaints.expect(gyreCommSplit(comm, 0, 0, &child, nullptr) == gyreInvalidUsage,
                      gyreGetLastError(comm));
    complaints.expect(child == nullptr, "a handle");
    gyreResult_t error = gyreInternalError;
    (void)gyreCommGetAsyncError(comm, &error);
    complaints.expect(error == gyreSuccess, gyreGetLastError(comm));
    // Sends have no protocol to choose.
    float value = 3;
    complaints.expect((rank == 0 ? gyreSend(&value, 1, gyreFloat, 1, comm, nullptr)
                                 : gyreRecv(&value, 1, gyreFloat, 0, comm, nullptr)) == gyreSuccess,
                      gyreGetLastError(comm));
  });
}

TEST_CASE("a hundred splits leave neither descriptors nor threads", "[split]") {
  const auto count = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  on_ranks(4, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::ptrdiff_t descriptors = 0, threads = 0;
    for (int round = 0; round < 100; ++round) {
      gyreComm_t child = nullptr;
      if (gyreCommSplit(comm, rank % 2, rank, &child, nullptr) != gyreSuccess)
        return complaints.add(gyreGetLastError(comm));
      complaints.expect(headcount(child) == 2, "another size");
      complaints.expect(gyreCommDestroy(child) == gyreSuccess, gyreGetLastError(nullptr));
      (void)gyreBarrier(comm, nullptr);
      if (rank == 0 && round == 9)
        descriptors = count("/proc/self/fd"), threads = count("/proc/self/task");
    }
    if (rank != 0) return;
    complaints.expect(count("/proc/self/fd") <= descriptors + 4, "descriptors grow");
    complaints.expect(count("/proc/self/task") <= threads, "threads grow");
  });
}

TEST_CASE("a non-blocking communicator begins, and says when it is done", "[nonblocking]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  // One thread for all ranks: nothing may wait.
  constexpr int n = 4;
  std::vector<gyreComm_t> comms(n), children(n);
  for (int rank = 0; rank < n; ++rank)
    CHECK(gyreCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], n, id, rank, &config) ==
          gyreInProgress);
  for (gyreComm_t comm : comms) CHECK(settled(comm) == gyreSuccess);
  std::vector<int> data(n, 1), gathered(n * n);
  for (std::size_t rank = 0; rank < n; ++rank) {
    CHECK(gyreAllReduce(&data[rank], &data[rank], 1, gyreInt, gyreSum, comms[rank], nullptr) ==
          gyreInProgress);
    CHECK(gyreAllGather(&data[rank], &gathered[rank * n], 1, gyreInt, comms[rank], nullptr) ==
          gyreInProgress);
    CHECK(gyreCommSplit(comms[rank], static_cast<int>(rank) / 2, 0, &children[rank], nullptr) ==
          gyreInProgress);
  }
  for (gyreComm_t comm : comms) CHECK(settled(comm) == gyreSuccess);
  CHECK(data == std::vector<int>(n, n));
  CHECK(gathered == std::vector<int>(n * n, n));
  for (std::size_t rank = 0; rank < n; ++rank) {
    int size = 0;
    CHECK((gyreCommCount(children[rank], &size) == gyreSuccess && size == 2));
    CHECK(gyreCommFinalize(comms[rank]) == gyreSuccess);
    CHECK(gyreCommDestroy(comms[rank]) == gyreSuccess);
    CHECK(gyreCommDestroy(children[rank]) == gyreSuccess);
  }
}

TEST_CASE("a non-blocking communicator whose ranks do not come can be aborted", "[nonblocking]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  gyreComm_t comm = nullptr;
  CHECK(gyreCommInitRankConfig(&comm, 2, id, 0, &config) == gyreInProgress);
  gyreResult_t state = gyreSuccess;
  CHECK((gyreCommGetAsyncError(comm, &state) == gyreSuccess && state == gyreInProgress));
  const auto start = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(comm) == gyreSuccess);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  CHECK(gyreCommGetAsyncError(comm, &state) == gyreInvalidArgument);
}

// Rank 2 does not split: the others wait for it in the background.
TEST_CASE("a non-blocking communicator can be aborted in the middle of a split", "[nonblocking]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.timeoutMs = 15'000;
  on_ranks(
      3,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        if (settled(comm) != gyreSuccess) return complaints.add(gyreGetLastError(comm));
        auto child = reinterpret_cast<gyreComm_t>(1);
        if (rank != 2)
          complaints.expect(gyreCommSplit(comm, 0, rank, &child, nullptr) == gyreInProgress,
                            gyreGetLastError(comm));
        if (rank == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          const auto start = std::chrono::steady_clock::now();
          complaints.expect(gyreCommAbort(comm) == gyreSuccess, gyreGetLastError(nullptr));
          complaints.expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(3),
                            "the abort took long");
          return complaints.expect(child == nullptr, "a handle after the abort");
        }
        gyreResult_t state = gyreSuccess;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while ((state == gyreSuccess || state == gyreInProgress) &&
               std::chrono::steady_clock::now() < until)
          if (gyreCommGetAsyncError(comm, &state) != gyreSuccess) return complaints.add("no state");
        complaints.expect(state == gyreRemoteError, gyreGetErrorString(state));
        complaints.expect(mentions(gyreGetLastError(comm), "rank 0"), gyreGetLastError(comm));
        complaints.expect(rank == 2 || child == nullptr, "a handle after the failure");
      },
      &config);
}

TEST_CASE("to destroy a non-blocking communicator waits for its split, until its deadline",
          "[nonblocking]") {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.timeoutMs = 1500;
  on_ranks(
      3,
      [](int rank, gyreComm_t comm, Complaints& complaints) {
        if (settled(comm) != gyreSuccess) return complaints.add(gyreGetLastError(comm));
        auto child = reinterpret_cast<gyreComm_t>(1);
        const auto start = std::chrono::steady_clock::now();
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::seconds(3));
        } else if (gyreCommSplit(comm, 0, rank, &child, nullptr) != gyreInProgress) {
          return complaints.add(gyreGetLastError(comm));
        }
        complaints.expect(gyreCommDestroy(comm) == gyreSuccess, gyreGetLastError(nullptr));
        const auto took = std::chrono::steady_clock::now() - start;
        if (rank == 2) return;
        complaints.expect(child == nullptr, "a handle of a split that failed");
        complaints.expect(took > std::chrono::seconds(1) && took < std::chrono::seconds(10),
                          "it did not end with the split's deadline");
      },
      &config);
}

}  // namespace split_test
