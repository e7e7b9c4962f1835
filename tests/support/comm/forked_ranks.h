// Ranks as processes of one test, forked while it has one thread. They report on a board in shared
// memory.
#pragma once

#include <gyre/gyre.h>

#include <atomic>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace gyre::tests {

struct RankBoard {
  std::atomic<int> id_is_there{0};
  gyreUniqueId id;
  std::atomic<int> signed_by{0}, begun{0};  // the test's own
  std::atomic<int> wrong{0};
  char text[600] = {};

  void complain(const std::string& what) {
    if (wrong.fetch_add(1) == 0) what.copy(text, sizeof text - 1);
  }
  // Complains with `comm`'s last error.
  void expect(gyreResult_t result, gyreComm_t comm = nullptr) {
    if (result != gyreSuccess) complain(gyreGetLastError(comm));
  }
};

// False after half a minute.
bool comes(const std::function<bool()>& condition);

// In a rank: rank 0's id comes to all of them over the board.
void share_id(RankBoard& board, int rank);
// The same, and they meet.
gyreComm_t meet(RankBoard& board, int rank, int size, bool blocking = true);

// Carries out `body` as each rank, in a process that ends with it, unless it ended by itself. How
// each did (as waitpid has it), by rank; what was wrong is checked.
[[nodiscard]] std::vector<int> run_forked(int size,
                                          const std::function<void(RankBoard&, int rank)>& body);

}  // namespace gyre::tests
