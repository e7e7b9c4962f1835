// Processes with many ranks each, as threads, next to other processes. One call then uses more lent
// buffers of one peer process than it keeps mapped. Every collective, in memory of gyreMemAlloc.
// The test process has one thread when it forks.
#include "tests/support/catch.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/comm/forked_ranks.h"
#include "tests/support/comm/ranks.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace crowded_process_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

constexpr Function functions[] = {
    Function::all_reduce,   Function::reduce_scatter,   Function::all_gather,
    Function::broadcast,    Function::reduce,           Function::all_to_all,
    Function::gather,       Function::scatter,          Function::all_to_all_v,
    Function::all_gather_v, Function::reduce_scatter_v,
};

// Ranks lie in the processes one after the other.
struct World {
  std::vector<int> ranks_each;
  Variables settings;
  int size() const {
    int sum = 0;
    for (const int ranks : ranks_each) sum += ranks;
    return sum;
  }
};

// Memory of gyreMemAlloc for the blocks of one rank, each a region of its own.
class LentBlocks {
 public:
  LentBlocks(CaseBuffers& buffers, int rank, RankBoard& board) : buffers_(buffers) {
    for (std::size_t side = 0; side < 2; ++side) {
      const std::size_t index = 2 * static_cast<std::size_t>(rank) + side;
      const std::span<std::byte> block = buffers.block(index);
      if (block.empty()) continue;
      void* memory = nullptr;
      board.expect(gyreMemAllocOn(&memory, block.size(), GYRE_DEVICE_HOST));
      std::copy(block.begin(), block.end(), static_cast<std::byte*>(memory));
      buffers.place(index, static_cast<std::byte*>(memory));
      lent_.push_back({index, static_cast<std::byte*>(memory)});
    }
  }
  void take_back(RankBoard& board) {
    for (const auto& [index, memory] : lent_) {
      const std::span<std::byte> block = buffers_.block(index);
      std::copy_n(memory, block.size(), block.begin());
      board.expect(gyreMemFree(memory));
    }
  }

 private:
  struct Place {
    std::size_t index;
    std::byte* memory;
  };
  CaseBuffers& buffers_;
  std::vector<Place> lent_;
};

std::vector<CollectiveCase> all_cases(int size) {
  std::vector<CollectiveCase> cases;
  for (const Function function : functions)
    for (const bool in_place : {false, true}) {
      CollectiveCase one{.function = function,
                         .ranks = size,
                         .type = ElementType::int32,
                         .in_place = in_place,
                         .count = 2503};
      one.root = static_cast<int>(cases.size()) % size;
      if (one.is_legal()) cases.push_back(one);
    }
  return cases;
}

void call_all(RankBoard& board, int rank, int size, std::vector<CaseBuffers>& all) {
  gyreComm_t comm = meet(board, rank, size);
  for (std::size_t i = 0; i < all.size() && board.wrong == 0; ++i) {
    LentBlocks lent(all[i], rank, board);
    board.expect(all[i].call(rank, comm), comm);
    // Whoever is done with this one may free what others still use of it.
    board.expect(gyreBarrier(comm, nullptr), comm);
    lent.take_back(board);
    const std::string wrong = all[i].wrong(rank);
    if (!wrong.empty()) board.complain(all_cases(size)[i].shown() + ": " + wrong);
  }
  board.expect(gyreCommDestroy(comm));
}

void take_part(RankBoard& board, int process, const World& world) {
  for (const auto& [name, value] : world.settings) setenv(name.c_str(), value.c_str(), 1);
  int first = 0;
  for (int before = 0; before < process; ++before)
    first += world.ranks_each[static_cast<std::size_t>(before)];
  std::vector<CaseBuffers> all;
  for (const CollectiveCase& one : all_cases(world.size())) all.emplace_back(one);
  std::vector<std::thread> threads;
  for (int i = 0; i < world.ranks_each[static_cast<std::size_t>(process)]; ++i)
    threads.emplace_back([&, rank = first + i] { call_all(board, rank, world.size(), all); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("a process reaches all buffers that the ranks of another one lend for a call",
          "[crowded]") {
  const auto ranks_each =
      GENERATE(std::vector<int>{9, 1}, std::vector<int>{12, 1}, std::vector<int>{16, 1},
               std::vector<int>{17, 1}, std::vector<int>{9, 9});
  const auto settings = GENERATE(
      Variables{}, Variables{{"GYRE_ALGO", "twoshot,pairwise,linear"}, {"GYRE_PROTO", "Direct"}});
  const World world{ranks_each, settings};
  const auto ends =
      run_forked(static_cast<int>(ranks_each.size()),
                 [&](RankBoard& board, int process) { take_part(board, process, world); });
  CHECK(ends == std::vector<int>(ranks_each.size(), 0));
}

}  // namespace crowded_process_test
