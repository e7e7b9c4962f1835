// The log's lines about pairs of ranks (GYRE_DEBUG=INFO, subsystem GRAPH), and GYRE_TOPO_FILE. Each
// rank is a process with a log of its own.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"
#include "tests/support/comm/ranks_log.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sched.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace pair_log_test {

using namespace gyre::tests;

namespace {

// A file of this process that goes with it.
class OwnFile {
 public:
  explicit OwnFile(const char* kind)
      : path_(std::filesystem::temp_directory_path() /
              ("gyre-" + std::string(kind) + "-" + std::to_string(getpid()))) {}
  ~OwnFile() { std::filesystem::remove(path_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

 private:
  const std::string path_;
};

// What the line about these peers says; empty: there is none.
std::string line_about(const std::string& log, const std::string& pair) {
  const std::size_t begin = log.find(pair);
  return begin == std::string::npos ? "" : log.substr(begin, log.find('\n', begin) - begin);
}

void expect_words(RankBoard& board, const std::string& line,
                  std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    if (line.find(word) == std::string::npos)
      board.complain("\"" + line + "\" does not say \"" + std::string(word) + "\"");
}

bool bind_to_processor(int number) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(number, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

std::string pair_text(int rank, const std::string& peers) {
  return "rank " + std::to_string(rank) + " to " + peers + ": ";
}

}  // namespace

TEST_CASE("the log says for each pair which transport is taken, and why", "[log]") {
  const auto ends = run_forked(3, [](RankBoard& board, int rank) {
    const RanksLog log("GRAPH");
    gyreComm_t comm = meet(board, rank, 3);
    constexpr const char* peers[] = {"ranks 1, 2", "ranks 0, 2", "ranks 0, 1"};
    expect_words(board, line_about(log.text(), pair_text(rank, peers[rank])),
                 {"shm: same host and user, ", "; then tcp: over loopback, no figure"});
    board.expect(gyreCommDestroy(comm), comm);
  });
  CHECK(ends == std::vector<int>(3, 0));
}

TEST_CASE("GYRE_TOPO_FILE says what the host is made of", "[log]") {
  constexpr const char* two_sockets =
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"1\" vendor=\"AuthenticAMD\" "
      "familyid=\"25\"/><cpu numaid=\"1\" affinity=\"2\" vendor=\"AuthenticAMD\" "
      "familyid=\"25\"/></system>";
  const auto ends = run_forked(2, [](RankBoard& board, int rank) {
    const RanksLog log("GRAPH");
    const OwnFile machine("machine");
    machine.write(two_sockets);
    ::setenv("GYRE_TOPO_FILE", machine.path().c_str(), 1);
    if (!bind_to_processor(rank)) return;  // this machine has one alone
    gyreComm_t comm = meet(board, rank, 2);
    const std::string peer = rank == 0 ? "rank 1" : "rank 0";
    expect_words(board, line_about(log.text(), pair_text(rank, peer)),
                 {"shm: same host and user, SYS, ", " GB/s"});
    board.expect(gyreCommDestroy(comm), comm);
  });
  CHECK(ends == std::vector<int>(2, 0));
}

TEST_CASE("a GYRE_TOPO_FILE that is none is an error that names it", "[log]") {
  const auto ends = run_forked(1, [](RankBoard& board, int) {
    const OwnFile machine("machine");
    machine.write("<topology>\n<object/>\n");
    ::setenv("GYRE_TOPO_FILE", machine.path().c_str(), 1);
    gyreComm_t comm = nullptr;
    if (gyreCommInitAll(&comm, 1, nullptr) == gyreSuccess) board.complain("the file was taken");
    expect_words(board, gyreGetLastError(nullptr), {"GYRE_TOPO_FILE", machine.path(), "line "});
  });
  CHECK(ends == std::vector<int>(1, 0));
}

}  // namespace pair_log_test
