// Ranks whose processes end without gyreCommDestroy: what they gave is not lost to the others, and
// who is missed is named.
#include "tests/support/forked_ranks.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace gyre::tests;

namespace {

constexpr std::size_t count = 64;

float sum_of_ones(RankBoard& board, gyreComm_t comm) {
  float value = 1;
  board.expect(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, nullptr), comm);
  return value;
}

// Says who it is, before it ends.
void sign(RankBoard& board) { board.stage = getpid(); }
// The process of whoever signed has ended, and all processes have had the time to notice.
void await_end(RankBoard& board) {
  const auto is_gone = [&] {
    const pid_t signed_by = board.stage;
    return signed_by != 0 && kill(signed_by, 0) != 0 && errno == ESRCH;
  };
  if (!comes(is_gone)) board.complain("the rank does not end");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// An all-reduce, or a message from rank 0.
gyreResult_t call(bool is_message, int rank, float* values, gyreComm_t comm, gyreStream_t stream) {
  if (!is_message) return gyreAllReduce(values, values, count, gyreFloat, gyreSum, comm, stream);
  return rank == 0 ? gyreSend(values, count, gyreFloat, 1, comm, stream)
                   : gyreRecv(values, count, gyreFloat, 0, comm, stream);
}

// One that has begun, on a stream that goes on when it is synchronized.
struct Begun {
  Begun(RankBoard& board, bool is_message, int rank, gyreComm_t comm) {
    board.expect(gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER));
    board.expect(call(is_message, rank, values.data(), comm, stream), comm);
  }
  gyreStream_t stream = nullptr;
  std::vector<float> values = std::vector<float>(count, 1);
};

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

TEST_CASE("what a process gave before it ended well is taken later", "[departure]") {
  run_forked(2, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, 2);
    sum_of_ones(board, comm);
    std::vector<float> values(count, rank == 0 ? 7 : 0);
    const auto broadcast = [&] {
      board.expect(gyreBroadcast(values.data(), values.data(), count, gyreFloat, 0, comm, nullptr),
                   comm);
    };
    if (rank == 0) {
      for (int i = 0; i < 3; ++i) broadcast();
      sign(board);
      std::exit(0);
    }
    await_end(board);
    for (int i = 0; i < 3; ++i) {
      values.assign(count, 0);
      broadcast();
      if (values != std::vector<float>(count, 7)) board.complain("other values");
    }
    board.expect(gyreCommDestroy(comm), comm);
  });
}

TEST_CASE("an operation outlives a rank that was killed after its part of it", "[departure]") {
  const auto [size, is_message] = GENERATE(table<int, bool>({{2, false}, {3, false}, {2, true}}));
  run_forked(size, [size = size, is_message = is_message](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, size);
    sum_of_ones(board, comm);
    if (rank == 0) {
      std::vector<float> values(count, is_message ? 2 : 1);
      board.expect(call(is_message, rank, values.data(), comm, nullptr), comm);
      sign(board);
      _exit(0);
    }
    const Begun begun(board, is_message, rank, comm);
    await_end(board);
    board.expect(gyreStreamSynchronize(begun.stream), comm);
    if (begun.values != std::vector<float>(count, static_cast<float>(size)))
      board.complain("other values");
    expect_named(board, comm, "died");
  });
}

TEST_CASE("a process that ends in the middle, or badly, is named", "[departure]") {
  const bool in_the_middle = GENERATE(false, true);
  run_forked(2, [in_the_middle](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, 2);
    sum_of_ones(board, comm);
    if (rank == 0) {
      sign(board);
      if (in_the_middle) (void)new Begun(board, false, rank, comm);
      std::exit(in_the_middle ? 0 : 3);
    }
    await_end(board);
    expect_named(board, comm, "ended without leaving");
  });
}
