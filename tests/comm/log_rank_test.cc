// Which rank the log lines show: the process's rank, if it has exactly one. Each rank is a process
// with a log of its own.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"
#include "tests/support/comm/ranks_log.h"

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace log_rank_test {

using namespace gyre::tests;

namespace {

// This process's log from here on.
class LogOfProcess {
 public:
  // What stands before GYRE in the line of a call that is refused now: "host:pid:tid [rank]".
  std::string head_of_line() const {
    (void)gyreBarrier(nullptr, nullptr);
    const std::string text = log_.text();
    const std::size_t end = text.rfind(" GYRE INFO CALL");
    if (end == std::string::npos) return "no line";
    const std::size_t begin = text.rfind('\n', end) + 1;
    return text.substr(begin, end - begin);
  }

 private:
  const RanksLog log_{"CALL"};
};

void expect_end(RankBoard& board, const std::string& head, const std::string& end) {
  if (!head.ends_with(end)) board.complain("\"" + head + "\" does not end in " + end);
}
void expect_none(RankBoard& board, const std::string& head) {
  if (head.ends_with("]")) board.complain("\"" + head + "\" shows a rank");
}

}  // namespace

TEST_CASE("lines show the rank that a process has, also after a split", "[log]") {
  const auto ends = run_forked(2, [](RankBoard& board, int rank) {
    const LogOfProcess log;
    const std::string own = " [" + std::to_string(rank) + "]";
    gyreComm_t comm = meet(board, rank, 2), turned = nullptr;
    expect_end(board, log.head_of_line(), own);
    board.expect(gyreCommSplit(comm, 0, -rank, &turned, nullptr), comm);
    expect_end(board, log.head_of_line(), own);
    board.expect(gyreCommDestroy(comm));
    expect_end(board, log.head_of_line(), own);
    board.expect(gyreCommDestroy(turned));
    expect_none(board, log.head_of_line());
  });
  CHECK(ends == std::vector<int>(2, 0));
}

TEST_CASE("lines show no rank where a process has several", "[log]") {
  const auto ends = run_forked(1, [](RankBoard& board, int) {
    const LogOfProcess log;
    std::array<gyreComm_t, 2> comms{};
    board.expect(gyreCommInitAll(comms.data(), 2, nullptr));
    expect_none(board, log.head_of_line());
    for (gyreComm_t comm : comms) board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(1, 0));
}

}  // namespace log_rank_test
