// Ranks whose processes end without gyreCommDestroy: the data that they sent still arrives, and an
// operation that needs more of them fails and names them.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <vector>

namespace departure_test {

using namespace gyre::tests;

namespace {

constexpr std::size_t count = 64;

// An all-reduce, or a message from rank 0.
gyreResult_t call(bool is_message, int rank, float* values, gyreComm_t comm, gyreStream_t stream) {
  if (!is_message) return gyreAllReduce(values, values, count, gyreFloat, gyreSum, comm, stream);
  return rank == 0 ? gyreSend(values, count, gyreFloat, 1, comm, stream)
                   : gyreRecv(values, count, gyreFloat, 0, comm, stream);
}

// All links that the tests use are open afterwards, and rank 0 is ahead with nothing.
gyreComm_t meet_and_talk(RankBoard& board, int rank, int size) {
  const gyreComm_t comm = meet(board, rank, size);
  std::vector<float> values(count, 1);
  for (const bool is_message : {true, false})
    if (!is_message || rank < 2)
      board.expect(call(is_message, rank, values.data(), comm, nullptr), comm);
  return comm;
}

// Says who it is, before it ends, once the others have begun so many operations.
void sign(RankBoard& board, int begun = 0) {
  if (!comes([&] { return board.begun >= begun; })) board.complain("the others do not begin");
  board.signed_by = getpid();
}
// The process of whoever signed has ended, and all processes have had the time to notice.
void await_end(RankBoard& board) {
  const auto is_gone = [&] {
    return board.signed_by != 0 && kill(board.signed_by, 0) != 0 && errno == ESRCH;
  };
  if (!comes(is_gone)) board.complain("the rank does not end");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// One that has begun, on a stream that goes on when it is synchronized.
struct Begun {
  Begun(RankBoard& board, bool is_message, int rank, gyreComm_t comm) {
    board.expect(gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER));
    board.expect(call(is_message, rank, values.data(), comm, stream), comm);
    ++board.begun;
  }
  gyreStream_t stream = nullptr;
  std::vector<float> values = std::vector<float>(count, 1);
};

// What became of the processes.
std::vector<int> in_peace(int ranks) {
  return std::vector<int>(static_cast<std::size_t>(ranks), 0);
}

// The next call of a rank that lives.
void expect_named(RankBoard& board, gyreComm_t comm, const std::string& how) {
  float value = 1;
  if (gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, nullptr) != gyreRemoteError)
    board.complain("the missing rank was not missed");
  const std::string text = gyreGetLastError(comm);
  if (text.find("rank 0 (") == std::string::npos || text.find(how) == std::string::npos)
    board.complain("not named: " + text);
}

}  // namespace

TEST_CASE("an operation outlives a rank that was killed after its part of it", "[departure]") {
  const auto [size, is_message] = GENERATE(table<int, bool>({{2, false}, {3, false}, {2, true}}));
  const auto body = [size = size, is_message = is_message](RankBoard& board, int rank) {
    const gyreComm_t comm = meet_and_talk(board, rank, size);
    if (rank == 0) {
      std::vector<float> values(count, is_message ? 2 : 1);
      board.expect(call(is_message, rank, values.data(), comm, nullptr), comm);
      sign(board, size - 1);
      _exit(0);
    }
    const Begun begun(board, is_message, rank, comm);
    await_end(board);
    board.expect(gyreStreamSynchronize(begun.stream), comm);
    if (begun.values != std::vector<float>(count, static_cast<float>(size)))
      board.complain("other values");
    expect_named(board, comm, "died");
  };
  CHECK(run_forked(size, body) == in_peace(size));
}

TEST_CASE("messages outlive a rank that was killed, whichever receive goes on first",
          "[departure]") {
  const auto ends = run_forked(2, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet_and_talk(board, rank, 2);
    if (rank == 0) {
      for (const float value : {7.0F, 8.0F}) {
        std::vector<float> values(count, value);
        board.expect(call(true, rank, values.data(), comm, nullptr), comm);
      }
      sign(board, 2);
      _exit(0);
    }
    const Begun first(board, true, rank, comm), second(board, true, rank, comm);
    await_end(board);
    board.expect(gyreStreamSynchronize(second.stream), comm);
    board.expect(gyreStreamSynchronize(first.stream), comm);
    if (first.values != std::vector<float>(count, 7) ||
        second.values != std::vector<float>(count, 8))
      board.complain("other values");
  });
  CHECK(ends == in_peace(2));
}

TEST_CASE("a process that ends without leaving is named, in an operation or not", "[departure]") {
  const bool in_the_middle = GENERATE(false, true);
  const auto ends = run_forked(2, [in_the_middle](RankBoard& board, int rank) {
    const gyreComm_t comm = meet_and_talk(board, rank, 2);
    if (rank == 0) {
      sign(board);
      if (in_the_middle) (void)new Begun(board, false, rank, comm);
      std::exit(0);
    }
    await_end(board);
    expect_named(board, comm, "ended without leaving");
  });
  CHECK(ends == in_peace(2));
}

// The answer may come from a thread of Gyre, which tells the peers as well.
TEST_CASE("a process that ends with the first sight of an error has told its peers",
          "[departure]") {
  for (int turn = 0; turn < 40; ++turn) {
    const auto ends = run_forked(2, [](RankBoard& board, int rank) {
      const gyreComm_t comm = meet_and_talk(board, rank, 2);
      gyreStream_t stream = nullptr;
      board.expect(gyreStreamCreate(&stream));
      std::vector<float> values(count, 1);
      const std::size_t own_count = rank == 0 ? 40 : 41;
      board.expect(
          gyreAllReduce(values.data(), values.data(), own_count, gyreFloat, gyreSum, comm, stream),
          comm);
      gyreResult_t state = gyreSuccess;
      const auto has_failed = [&] {
        return gyreCommGetAsyncError(comm, &state) != gyreSuccess || state != gyreSuccess;
      };
      while (rank == 0 && !has_failed()) continue;
      if (rank == 0) _exit(0);
      const std::string text =
          gyreStreamSynchronize(stream) == gyreSuccess ? "no error" : gyreGetLastError(comm);
      if (text.find("40 float") == text.npos || text.find("41 float") == text.npos)
        board.complain(text);
    });
    CHECK(ends == in_peace(2));
  }
}

namespace {

// Of the process that exits; its handler of exit() runs after Gyre's.
struct Leaving {
  gyreComm_t comm = nullptr;
  std::vector<float>* values = nullptr;
  std::atomic<int> is_refused{0};
};
Leaving leaving;

// Its call was refused, so the buffer serves for something else; then it makes other calls.
void use_buffer_again() {
  (void)comes([] { return leaving.is_refused != 0; });
  std::ranges::fill(*leaving.values, -1.0F);
  gyreResult_t state = gyreSuccess;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < until)
    (void)gyreCommGetAsyncError(leaving.comm, &state);
  _exit(0);
}

}  // namespace

TEST_CASE("what a process that exits takes back from a refused call is not sent", "[departure]") {
  const char* transport = GENERATE("shm,self", "tcp,self");
  setenv("GYRE_TRANSPORT", transport, 1);
  for (int turn = 0; turn < 12; ++turn) {
    const auto ends = run_forked(2, [turn](RankBoard& board, int rank) {
      if (rank == 1) std::atexit(use_buffer_again);
      const gyreComm_t comm = meet_and_talk(board, rank, 2);
      std::vector<float> values(1 << 22, 1);  // more than is sent at once
      ++board.signed_by;
      if (!comes([&] { return board.signed_by >= 2; })) board.complain("not all have talked");
      if (rank == 0) {
        const gyreResult_t result =
            gyreRecv(values.data(), values.size(), gyreFloat, 1, comm, nullptr);
        if (result == gyreSuccess && std::ranges::count(values, -1.0F) != 0)
          board.complain("what was written after the call came as its data");
        return;
      }
      leaving.comm = comm;
      leaving.values = &values;
      gyreStream_t stream = nullptr;
      board.expect(gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER));
      board.expect(gyreSend(values.data(), values.size(), gyreFloat, 0, comm, stream), comm);
      std::thread waiter([&] {
        (void)gyreStreamSynchronize(stream);
        leaving.is_refused = 1;
      });
      std::this_thread::sleep_for(std::chrono::microseconds(150 * turn));
      std::exit(0);
    });
    CHECK(ends == in_peace(2));
  }
}

}  // namespace departure_test
