// Scatters whose blocks the ranks copy from the root's memory. The test process has one thread when
// it forks.
#include "lib/base/wait.h"
#include "tests/support/base/denied_call.h"
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"
#include "tests/support/comm/ranks_log.h"

#include <cstdlib>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace copied_memory_test {

using namespace gyre::tests;

namespace {

constexpr int ranks = 3;

std::int32_t value_of(int round, int rank, std::size_t index) {
  return static_cast<std::int32_t>(index * 7) + 1000 * round + 100'000'000 * rank;
}

// Blocks of `count` from `root`; in place at the root where the round is odd.
void scatter(RankBoard& board, gyreComm_t comm, int rank, int root, std::size_t count, int round) {
  std::vector<std::int32_t> input, output(count, -1);
  if (rank == root)
    for (int to = 0; to < ranks; ++to)
      for (std::size_t i = 0; i < count; ++i) input.push_back(value_of(round, to, i));
  const bool in_place = rank == root && round % 2 == 1;
  std::int32_t* const mine =
      in_place ? input.data() + static_cast<std::size_t>(rank) * count : output.data();
  board.expect(gyreScatter(input.data(), mine, count, gyreInt32, root, comm, nullptr), comm);
  for (std::size_t i = 0; i < count; ++i)
    if (mine[i] != value_of(round, rank, i))
      return board.complain("rank " + std::to_string(rank) + " has a wrong value at " +
                            std::to_string(i) + " of " + std::to_string(count));
}

bool bind_to_one_processor() {
  cpu_set_t own, one;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return false;
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

}  // namespace

TEST_CASE("blocks of a scatter are the root's, copied or not", "[copied]") {
  const char* const cma = GENERATE("0", "1", "auto");
  const bool is_denied = GENERATE(false, true);
  CAPTURE(cma, is_denied);
  const auto ends = run_forked(ranks, [cma, is_denied](RankBoard& board, int rank) {
    setenv("GYRE_CMA", cma, 1);
    if (is_denied && rank > 0) (void)deny_call(SYS_process_vm_readv);
    const gyreComm_t comm = meet(board, rank, ranks);
    int round = 0;
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{30'000},
                                    std::size_t{32 << 10}, std::size_t{333'333}})
      for (int root = 0; root < ranks; ++root)
        for (int again = 0; again < 3 && board.wrong == 0; ++again)
          scatter(board, comm, rank, root, count, round++);
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(ranks, 0));
}

// The log tells of ranks that would copy, and may not.
TEST_CASE("ranks that outnumber processors copy unless a yield hands theirs on", "[copied]") {
  const bool has_own_session = GENERATE(false, true);
  CAPTURE(has_own_session);
  const RanksLog log("INIT,SHM");
  const auto ends = run_forked(ranks, [has_own_session](RankBoard& board, int rank) {
    if (!bind_to_one_processor()) board.complain("it is not bound");
    if (has_own_session && setsid() < 0) board.complain("it has no session of its own");
    if (rank > 0) (void)deny_call(SYS_process_vm_readv);
    const gyreComm_t comm = meet(board, rank, ranks);
    scatter(board, comm, rank, 0, 32 << 10, 0);
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(ranks, 0));
  const bool stays_apart = has_own_session && !gyre::yield_group().empty();
  CHECK(log.says("do not share one session") == stays_apart);
  CHECK(log.says("copies nothing from the memory of rank 0") == stays_apart);
}

TEST_CASE("ranks that differ in GYRE_CMA or GYRE_CHECK_CALLS are told so", "[copied]") {
  const auto [variable, word] = GENERATE(
      table<const char*, const char*>({{"GYRE_CMA", "cma="}, {"GYRE_CHECK_CALLS", "check="}}));
  const auto ends = run_forked(2, [variable = variable, word = word](RankBoard& board, int rank) {
    setenv(variable, rank == 0 ? "0" : "1", 1);
    share_id(board, rank);
    gyreComm_t comm = nullptr;
    if (gyreCommInitRank(&comm, 2, board.id, rank) != gyreInvalidUsage)
      board.complain("they may differ");
    const std::string text = gyreGetLastError(nullptr);
    if (text.find(word) == text.npos) board.complain("it is not said: " + text);
  });
  CHECK(ends == std::vector<int>(2, 0));
}

}  // namespace copied_memory_test
