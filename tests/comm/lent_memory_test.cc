// Memory of gyreMemAlloc between processes: a process that lacks the means to map it, and buffers
// that come and go. The test process has one thread when it forks.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace lent_memory_test {

using namespace gyre::tests;

namespace {

// So much of a buffer, of floats.
constexpr std::size_t large_bytes = 64 << 20;

float* allocate(RankBoard& board, std::size_t bytes) {
  void* memory = nullptr;
  board.expect(gyreMemAllocOn(&memory, bytes, GYRE_DEVICE_HOST));
  return static_cast<float*>(memory);
}

gyreResult_t reduce(float* values, std::size_t bytes, gyreComm_t comm) {
  return gyreAllReduce(values, values, bytes / sizeof(float), gyreFloat, gyreSum, comm, nullptr);
}

void limit(RankBoard& board, __rlimit_resource what, rlim_t most) {
  const rlimit lowered{.rlim_cur = most, .rlim_max = most};
  if (setrlimit(what, &lowered) != 0) board.complain("no limit");
}

// No descriptor more than there are.
void forbid_files(RankBoard& board) {
  const int next = dup(STDERR_FILENO);
  close(next);
  limit(board, RLIMIT_NOFILE, static_cast<rlim_t>(next));
}

// In KiB, of /proc/self/status.
long status_kib(const char* name) {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[200];
  long value = -1;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    if (std::string(line).starts_with(std::string(name) + ":"))
      value = std::atol(line + std::string(name).size() + 1);
  if (file != nullptr) std::fclose(file);
  return value;
}

// Room for what calls take, and none for a large buffer of the peer's.
void forbid_mappings(RankBoard& board) {
  const long used_kib = status_kib("VmSize");
  limit(board, RLIMIT_AS, static_cast<rlim_t>(used_kib) * 1024 + large_bytes / 2);
}

}  // namespace

TEST_CASE("a rank that cannot map what another one lends says which limit, and blames nobody",
          "[lent]") {
  const bool files = GENERATE(true, false);
  const auto ends = run_forked(2, [files](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, 2);
    float* const first = allocate(board, 1 << 20);
    board.expect(reduce(first, 1 << 20, comm), comm);
    float* const next = allocate(board, large_bytes);
    if (rank == 1) files ? forbid_files(board) : forbid_mappings(board);
    const gyreResult_t result = reduce(next, large_bytes, comm);
    const std::string text = gyreGetLastError(comm);
    if (result != gyreSystemError)
      board.complain("rank " + std::to_string(rank) + " gets another error: " + text);
    if (text.find(files ? "ulimit -n" : "ulimit -v") == text.npos)
      board.complain("the limit is not named: " + text);
    if (rank == 0 && !text.starts_with("rank 1 (")) board.complain("it names another: " + text);
  });
  CHECK(ends == std::vector<int>(2, 0));
}

TEST_CASE("memory that was freed is nobody's any more, though others had mapped it", "[lent]") {
  constexpr std::size_t bytes = 4 << 20;
  constexpr int rounds = 24, ranks = 3;
  const auto ends = run_forked(ranks, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, ranks);
    long max_kib = 0;
    for (int round = 0; round < rounds && board.wrong == 0; ++round) {
      float* const values = allocate(board, bytes);
      std::fill_n(values, bytes / sizeof(float), 1.0F);
      board.expect(reduce(values, bytes, comm), comm);
      max_kib = std::max(max_kib, status_kib("RssShmem"));
      board.expect(gyreBarrier(comm, nullptr), comm);  // nobody uses it any more
      board.expect(gyreMemFree(values));
      board.expect(gyreBarrier(comm, nullptr), comm);
    }
    // A round has one buffer of each rank; as much again is more than links take.
    if (max_kib > 2 * ranks * static_cast<long>(bytes >> 10))
      board.complain("shared memory grows to " + std::to_string(max_kib) + " KiB");
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(ranks, 0));
}

// Longer than what a link holds. `seed` says who sends, and when.
namespace {

constexpr std::size_t long_count = 5 << 20;  // of bytes

void fill(void* buffer, unsigned seed) {
  auto* const values = static_cast<unsigned char*>(buffer);
  for (std::size_t i = 0; i < long_count; ++i)
    values[i] = static_cast<unsigned char>(i * 13 + i / 4096 + seed);
}

void expect_filled(RankBoard& board, const void* buffer, unsigned seed) {
  const auto* const values = static_cast<const unsigned char*>(buffer);
  for (std::size_t i = 0; i < long_count; ++i)
    if (values[i] != static_cast<unsigned char>(i * 13 + i / 4096 + seed))
      return board.complain("a wrong byte at " + std::to_string(i));
}

}  // namespace

TEST_CASE("long sends of lent memory arrive in any order, and may be written at once", "[lent]") {
  const auto ends = run_forked(2, [](RankBoard& board, int rank) {
    const gyreComm_t comm = meet(board, rank, 2);
    float* const sent = allocate(board, long_count);
    float* const received = allocate(board, long_count);
    for (unsigned round = 0; round < 8; ++round) {
      const auto own = static_cast<unsigned>(rank) * 101 + round;
      const auto others = static_cast<unsigned>(1 - rank) * 101 + round;
      fill(sent, own);
      board.expect(gyreGroupStart());
      board.expect(gyreSend(sent, long_count, gyreUint8, 1 - rank, comm, nullptr), comm);
      board.expect(gyreRecv(received, long_count, gyreUint8, 1 - rank, comm, nullptr), comm);
      board.expect(gyreGroupEnd(), comm);
      fill(sent, 77);  // all of it has been copied
      expect_filled(board, received, others);
    }
    // The second one is asked for first, and the other one kept meanwhile.
    std::vector<unsigned char> own_memory(long_count);
    if (rank == 0) {
      fill(sent, 1);
      fill(received, 2);
      board.expect(gyreGroupStart());
      board.expect(gyreSendTagged(sent, long_count, gyreUint8, 1, 5, comm, nullptr), comm);
      board.expect(gyreSendTagged(received, long_count, gyreUint8, 1, 6, comm, nullptr), comm);
      board.expect(gyreGroupEnd(), comm);
    } else {
      for (const int tag : {6, 5}) {
        board.expect(gyreRecvTagged(own_memory.data(), long_count, gyreUint8, 0, tag, nullptr,
                                    nullptr, comm, nullptr),
                     comm);
        expect_filled(board, own_memory.data(), tag == 5 ? 1 : 2);
      }
    }
    board.expect(gyreMemFree(sent));
    board.expect(gyreMemFree(received));
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(2, 0));
}

}  // namespace lent_memory_test
