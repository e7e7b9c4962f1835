#include "tests/support/comm/forked_ranks.h"

#include "tests/support/catch.h"

#include <chrono>
#include <cstdio>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gyre::tests {

bool comes(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void share_id(RankBoard& board, int rank) {
  if (rank == 0) {
    board.expect(gyreGetUniqueId(&board.id));
    board.id_is_there = 1;
  }
  if (!comes([&] { return board.id_is_there.load() == 1; })) board.complain("no id");
}

gyreComm_t meet(RankBoard& board, int rank, int size, bool blocking) {
  share_id(board, rank);
  gyreComm_t comm = nullptr;
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  gyreResult_t state = gyreCommInitRankConfig(&comm, size, board.id, rank, &config);
  while (state == gyreInProgress) board.expect(gyreCommGetAsyncError(comm, &state), comm);
  board.expect(state, comm);
  return comm;
}

std::vector<int> run_forked(int size, const std::function<void(RankBoard&, int rank)>& body) {
  void* const memory =
      mmap(nullptr, sizeof(RankBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  RankBoard& board = *new (memory) RankBoard;
  std::fflush(nullptr);  // or each process writes it again
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      body(board, rank);
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<int> ends;
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    ends.push_back(status);
  }
  INFO(board.text);
  CHECK(board.wrong.load() == 0);
  REQUIRE(munmap(memory, sizeof(RankBoard)) == 0);
  return ends;
}

}  // namespace gyre::tests
