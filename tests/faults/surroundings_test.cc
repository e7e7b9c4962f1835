// Ranks in a hostile environment: standard streams are closed, full or without a reader, limits are
// low. If Gyre cannot do something, the call fails in time and the other ranks get the error.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace surroundings_test {

using namespace gyre::tests;

namespace {

constexpr int standard[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};

std::vector<int> in_peace(int ranks) {
  return std::vector<int>(static_cast<std::size_t>(ranks), 0);
}

std::vector<bool> open_streams() {
  std::vector<bool> open;
  for (const int descriptor : standard) open.push_back(fcntl(descriptor, F_GETFD) != -1);
  return open;
}

void reduce(RankBoard& board, gyreComm_t comm, int size) {
  std::vector<float> values(1 << 16, 1);
  board.expect(
      gyreAllReduce(values.data(), values.data(), values.size(), gyreFloat, gyreSum, comm, nullptr),
      comm);
  if (values != std::vector<float>(values.size(), static_cast<float>(size)))
    board.complain("other values");
}

// Until it fails, or for half a minute.
gyreResult_t reduce_on(gyreComm_t comm) {
  float value = 1;
  gyreResult_t result = gyreSuccess;
  const auto fails = [&] {
    result = gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, nullptr);
    return result != gyreSuccess;
  };
  (void)comes(fails);
  return result;
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

// Files of the program's own, under the numbers that it has just closed.
class NewFiles {
 public:
  explicit NewFiles(RankBoard& board) : board_(board) {
    for (int& one : files_) one = memfd_create("new", MFD_CLOEXEC);
  }
  ~NewFiles() {
    for (const int one : files_)
      if (lseek(one, 0, SEEK_END) != 0) board_.complain("a new file was written to, or closed");
  }
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

 private:
  RankBoard& board_;
  int files_[64];
};

// Two ranks that say all they can say, on streams that `spoil` has seen to.
std::vector<int> run_loud(void (*spoil)(int rank)) {
  return run_forked(2, [spoil](RankBoard& board, int rank) {
    spoil(rank);
    const std::vector<bool> open_before = open_streams();
    setenv("GYRE_DEBUG", "TRACE", 1);
    const gyreComm_t comm = meet(board, rank, 2);
    for (int i = 0; i < 1000; ++i) reduce(board, comm, 2);
    gyreComm_t half = nullptr;
    board.expect(gyreCommSplit(comm, 0, rank, &half, nullptr), comm);
    reduce(board, half, 2);
    board.expect(gyreCommDestroy(half));
    board.expect(gyreCommDestroy(comm));
    if (open_streams() != open_before) board.complain("the library has one of the streams");
    std::exit(0);
  });
}

}  // namespace

TEST_CASE("ranks whose stderr nobody reads say what fits and go on", "[surroundings]") {
  CHECK(run_loud([](int) {
          int ends[2];
          if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
          alarm(60);
        }) == in_peace(2));
}

TEST_CASE("ranks whose stderr has lost its reader go on", "[surroundings]") {
  CHECK(run_loud([](int) {
          int ends[2];
          if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
          close(ends[0]);
          alarm(60);
        }) == in_peace(2));
}

TEST_CASE("ranks without standard streams go on, and give none of their files these numbers",
          "[surroundings]") {
  CHECK(run_loud([](int) {
          for (const int descriptor : standard) close(descriptor);
          alarm(60);
        }) == in_peace(2));
}

TEST_CASE("a limit on the size of files is an error that names it, and no signal",
          "[surroundings]") {
  const rlim_t most = GENERATE(0, 65536);
  CHECK(run_forked(2, [most](RankBoard& board, int rank) {
          const rlimit limit{.rlim_cur = most, .rlim_max = most};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) board.complain("no limit");
          const gyreComm_t comm = meet(board, rank, 2);
          ++board.begun;
          if (!comes([&] { return board.begun == 2; })) board.complain("not all have joined");
          void* memory = nullptr;  // which peers copy, then
          board.expect(gyreMemAlloc(&memory, 1 << 20));
          const auto result =
              gyreAllReduce(memory, memory, 1024, gyreFloat, gyreSum, comm, nullptr);
          const std::string text = gyreGetLastError(comm);
          const bool own = result == gyreSystemError && text.find("ulimit -f") != text.npos;
          if (!own && result != gyreRemoteError) board.complain("another end: " + text);
          if (own) board.signed_by = 1;
          if (!comes([&] { return board.signed_by == 1; })) board.complain("nobody says why");
          board.expect(gyreMemFree(memory));
          board.expect(gyreCommDestroy(comm));
        }) == in_peace(2));
}

TEST_CASE("a program that closes all descriptors gets an error in time, and keeps its new files",
          "[surroundings]") {
  const std::string transport = GENERATE("shm", "tcp");
  CAPTURE(transport);
  CHECK(run_forked(2, [&](RankBoard& board, int rank) {
          alarm(60);
          setenv("GYRE_TRANSPORT", transport.c_str(), 1);
          const gyreComm_t comm = meet(board, rank, 2);
          void* memory = nullptr;
          board.expect(gyreMemAlloc(&memory, 1 << 20));
          reduce(board, comm, 2);
          // What rank 1 has sent may still be in its sockets: closing them could lose it.
          ++board.begun;
          if (!comes([&] { return board.begun == 2; })) board.complain("not all have reduced");
          if (rank == 0) {
            if (reduce_on(comm) == gyreSuccess) board.complain("rank 0 hears of nothing");
            const std::string text = gyreGetLastError(comm);
            if (text.find("rank 1") == text.npos) board.complain("not named: " + text);
            board.expect(gyreCommDestroy(comm));
            std::exit(0);
          }
          closefrom(3);
          const NewFiles files(board);
          const gyreResult_t end = reduce_on(comm);
          const std::string text = gyreGetLastError(comm);
          if (end != gyreSystemError && end != gyreRemoteError) board.complain("rank 1: " + text);
          board.expect(gyreMemFree(memory));
          board.expect(gyreCommDestroy(comm));
          gyreUniqueId id;
          if (gyreGetUniqueId(&id) != gyreSystemError ||
              std::string(gyreGetLastError(nullptr)).find("closefrom") == std::string::npos)
            board.complain("rank 1 does not say why: " + std::string(gyreGetLastError(nullptr)));
          const double used = processor_seconds();
          std::this_thread::sleep_for(std::chrono::seconds(1));
          if (processor_seconds() - used > 0.3) board.complain("a core is burnt");
          std::exit(0);
        }) == in_peace(2));
}

}  // namespace surroundings_test
