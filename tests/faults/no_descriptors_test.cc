// A process that can open no more descriptors while links are opened: the ranks that wait for it
// get an error in time that names it, whether it had to dial, to accept, or to make shared memory.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace no_descriptors_test {

using namespace gyre::tests;

namespace {

constexpr int victim = 1, ranks = 3;

void open_no_more() {
  const int next = dup(STDERR_FILENO);
  close(next);
  const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Sockets of this process that have a peer.
int connected_sockets() {
  constexpr int most_descriptors = 256;
  int connected = 0;
  for (int descriptor = 0; descriptor < most_descriptors; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0) ++connected;
  }
  return connected;
}

// Of more than fits between two ranks: it ends when both have gone on.
gyreResult_t pass(int from, int to, int rank, gyreComm_t comm) {
  std::vector<float> values(1 << 20, 1);
  if (rank == from) return gyreSend(values.data(), values.size(), gyreFloat, to, comm, nullptr);
  return rank == to ? gyreRecv(values.data(), values.size(), gyreFloat, from, comm, nullptr)
                    : gyreSuccess;
}

bool says(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("who has no descriptors left is named", "[descriptors]") {
  const std::string transport = GENERATE("shm,self", "tcp,self");
  const auto [from, to] = GENERATE(table<int, int>({{0, victim}, {victim, 0}}));
  INFO(transport << ", from " << from << " to " << to);
  setenv("GYRE_TRANSPORT", transport.c_str(), 1);
  setenv("GYRE_LIVENESS_TIMEOUT", "1", 1);
  setenv("GYRE_TIMEOUT", "10", 1);
  // Who of two dials is drawn.
  for (int turn = 0; turn < 4; ++turn) {
    const auto ends = run_forked(ranks, [from = from, to = to](RankBoard& board, int rank) {
      const gyreComm_t comm = meet(board, rank, ranks);
      for (const int other : {0, victim}) board.expect(pass(other, 2, rank, comm), comm);
      ++board.signed_by;
      if (!comes([&] { return board.signed_by >= ranks; })) board.complain("not all have talked");
      if (rank == 2) return (void)comes([&] { return board.begun >= 2; });
      if (rank == victim) open_no_more();
      const auto begun = std::chrono::steady_clock::now();
      const gyreResult_t result = pass(from, to, rank, comm);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      const std::string text = gyreGetLastError(comm);
      const bool is_told = says(text, "EMFILE") || says(text, "descriptors");
      const bool blames_another = says(text, "rank 0 (host") || says(text, "rank 2 (host");
      if (result == gyreSuccess || !is_told || blames_another ||
          (rank != victim && !says(text, "rank 1 (")))
        board.complain("rank " + std::to_string(rank) + " reads: " + text);
      if (took.count() > 4) board.complain("told after " + std::to_string(took.count()) + " s");
      ++board.begun;
    });
    CHECK(ends == std::vector<int>(ranks, 0));
  }
}

// Ten processes are more than hang on rank 0 in the control tree: rank 9 has to dial rank 1, once
// the last one has come, which waits for that. Of the others nobody lacks anything.
TEST_CASE("who has no descriptors left for its place in the tree is named", "[descriptors]") {
  constexpr int processes = 10, dialer = 9, last = 3;
  setenv("GYRE_INIT_TIMEOUT", "2", 1);
  const auto ends = run_forked(processes, [](RankBoard& board, int rank) {
    share_id(board, rank);
    std::thread later;
    if (rank == dialer)
      later = std::thread([&board, before = connected_sockets()] {
        if (!comes([before] { return connected_sockets() > before; }))
          board.complain("rank 9 does not dial rank 0");
        open_no_more();
        ++board.begun;
      });
    if (rank == last && !comes([&] { return board.begun == 1; })) board.complain("no limit is set");
    gyreComm_t comm = nullptr;
    const gyreResult_t result = gyreCommInitRank(&comm, processes, board.id, rank);
    const std::string text = gyreGetLastError(comm);
    if (later.joinable()) later.join();
    if (result == gyreSuccess || !says(text, "rank 9"))
      board.complain("rank " + std::to_string(rank) + " reads: " + text);
    ++board.signed_by;
    if (!comes([&] { return board.signed_by == processes; })) board.complain("not all were told");
  });
  CHECK(ends == std::vector<int>(processes, 0));
}

}  // namespace no_descriptors_test
