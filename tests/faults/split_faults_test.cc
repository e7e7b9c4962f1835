// Splits in which one process fails midway or has already left.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace split_faults_test {

using namespace gyre::tests;

namespace {

constexpr int n = 5;

bool reduces(gyreComm_t comm, int ranks) {
  int one = 1;
  gyreResult_t state = gyreAllReduce(&one, &one, 1, gyreInt, gyreSum, comm, nullptr);
  while (state == gyreInProgress) (void)gyreCommGetAsyncError(comm, &state);
  return state == gyreSuccess && one == ranks;
}

std::vector<int> in_peace() { return std::vector<int>(n, 0); }

}  // namespace

TEST_CASE("a rank that cannot join its child ends the split on all ranks at once", "[split]") {
  const int odd = GENERATE(0, 1, n - 1);
  const auto ends = run_forked(n, [odd](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n);
    if (rank == odd) setenv("GYRE_ALGO", "nonsense", 1);
    gyreComm_t child = nullptr;
    gyreConfig_t config = GYRE_CONFIG_INITIALIZER;  // settings are read anew
    const auto start = std::chrono::steady_clock::now();
    const gyreResult_t result = gyreCommSplit(comm, 0, rank, &child, &config);
    const std::string text = gyreGetLastError(comm);
    if (result == gyreSuccess || child != nullptr) board.complain("the split succeeds");
    if (text.find("nonsense") == std::string::npos) board.complain("no cause: " + text);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(3))
      board.complain("it took long: " + text);
    (void)gyreCommDestroy(comm);
  });
  CHECK(ends == in_peace());
}

TEST_CASE("a new communicator that does not come together breaks the old one", "[split]") {
  const int blocking = GENERATE(1, 0);
  const auto ends = run_forked(n, [blocking](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n);
    if (rank == n - 1) setenv("GYRE_BUFFSIZE", "65536", 1);
    gyreComm_t child = nullptr;
    gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
    config.blocking = blocking;
    const bool fails = rank >= 2;
    gyreResult_t result = gyreCommSplit(comm, fails ? 1 : 0, rank, &child, &config);
    if (!fails && child == nullptr) board.complain(gyreGetLastError(comm));
    if (fails && (result == gyreSuccess || child != nullptr)) board.complain("the split succeeds");
    // Also who is in another one is told.
    const auto is_told = [&] {
      return gyreCommGetAsyncError(comm, &result) == gyreSuccess && result != gyreSuccess;
    };
    if (!comes(is_told)) board.complain("rank " + std::to_string(rank) + " is not told");
    const std::string text = gyreGetLastError(comm);
    if (text.find("of ranks 2, 3, 4") == std::string::npos) board.complain("no cause: " + text);
    if (child != nullptr && !reduces(child, 2)) board.complain("the other one does not work");
    if (child != nullptr) (void)gyreCommDestroy(child);
    (void)gyreCommDestroy(comm);
  });
  CHECK(ends == in_peace());
}

// Of ranks whose split went well some are in a call on the new one by then.
TEST_CASE("an abort in the middle of a split reaches the new communicator at once", "[split]") {
  constexpr int trials = 150, aborter = n - 1;
  const auto ends = run_forked(n, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n);
    for (int trial = 0; trial < trials; ++trial) {
      gyreComm_t parent = nullptr, child = nullptr;
      board.expect(gyreCommSplit(comm, 0, rank, &parent, nullptr), comm);
      if (!reduces(parent, n)) board.complain(gyreGetLastError(parent));  // all have it
      ++board.begun;
      if (!comes([&] { return board.begun >= n * (trial + 1); })) board.complain("not all came");
      std::thread other;
      if (rank == aborter)
        other = std::thread([parent, trial] {
          usleep(static_cast<useconds_t>(10 * trial));
          (void)gyreCommAbort(parent);
        });
      const gyreResult_t split = gyreCommSplit(parent, 0, rank, &child, nullptr);
      const auto since = std::chrono::steady_clock::now();
      while (split == gyreSuccess && rank != aborter && reduces(child, n)) {
      }
      if (std::chrono::steady_clock::now() - since > std::chrono::milliseconds(300))
        board.complain("it is told late: " + std::string(gyreGetLastError(child)));
      if (other.joinable()) other.join();
      if (child != nullptr) (void)gyreCommAbort(child);
      if (rank != aborter) (void)gyreCommAbort(parent);
    }
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == in_peace());
}

TEST_CASE("of a non-blocking parent a split that failed is never said to be well", "[split]") {
  const auto ends = run_forked(n, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n, false);
    if (rank == n - 1) setenv("GYRE_BUFFSIZE", "65536", 1);
    gyreComm_t child = nullptr;
    gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
    gyreResult_t state = gyreCommSplit(comm, 0, rank, &child, &config);
    while (state == gyreInProgress) (void)gyreCommGetAsyncError(comm, &state);
    if (state == gyreSuccess) board.complain("the split succeeds");
    (void)gyreCommAbort(comm);
  });
  CHECK(ends == in_peace());
}

TEST_CASE("a rank without a color may leave and end while the others split", "[split]") {
  const int leaver = GENERATE(0, 1);
  const auto ends = run_forked(n, [leaver](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n);
    gyreComm_t child = nullptr;
    const int color = rank == leaver ? GYRE_SPLIT_NOCOLOR : 0;
    board.expect(gyreCommSplit(comm, color, rank, &child, nullptr), comm);
    if (rank != leaver && !reduces(child, n - 1)) board.complain(gyreGetLastError(child));
    if (child != nullptr) board.expect(gyreCommDestroy(child));
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == in_peace());
}

TEST_CASE("ranks talk for the first time after others have left and ended", "[split]") {
  const auto ends = run_forked(n, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, n);
    if (rank == 0 || rank == 2) {
      board.expect(gyreCommDestroy(comm));
      ++board.begun;
      std::exit(0);
    }
    if (!comes([&] { return board.begun == 2; })) board.complain("nobody leaves");
    usleep(100'000);
    int value = rank;
    if (rank == 1) board.expect(gyreSend(&value, 1, gyreInt, 3, comm, nullptr), comm);
    if (rank == 3) board.expect(gyreRecv(&value, 1, gyreInt, 1, comm, nullptr), comm);
    if (rank == 3) board.expect(gyreSend(&value, 1, gyreInt, 4, comm, nullptr), comm);
    if (rank == 4) board.expect(gyreRecv(&value, 1, gyreInt, 3, comm, nullptr), comm);
    if (value != 1) board.complain("another value");
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == in_peace());
}

}  // namespace split_faults_test
