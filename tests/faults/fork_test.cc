// fork() during any call: the child may not use its parent's objects, and the parent continues.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"
#include <gyre/gradsync.h>

#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace fork_test {

using namespace gyre::tests;

// The leak sanitizer asks this at the end of a process.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();

namespace {

// This is a child whose parent's other threads are gone, with the stacks that led to their memory.
bool has_lost_stacks = false;

constexpr int ranks = 2;

// What a child of rank 0 complains of, on the board. It has half a minute.
void in_child(RankBoard& board, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child < 0) return board.complain("no fork");
  if (child == 0) {
    alarm(30);
    body();
    _exit(0);
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0)
    board.complain("the child ended with " + std::to_string(status));
}

void expect_refused(RankBoard& board, gyreResult_t result, const char* what) {
  if (result != gyreInvalidUsage)
    board.complain(std::string(what) + " in the child: " + gyreGetLastError(nullptr));
}

void expect_sum(RankBoard& board, gyreComm_t comm) {
  int one = 1, sum = 0;
  board.expect(gyreAllReduce(&one, &sum, 1, gyreInt32, gyreSum, comm, nullptr), comm);
  if (sum != ranks) board.complain("a wrong sum");
}

void run(const std::function<void(RankBoard&, int rank, gyreComm_t comm)>& body) {
  const auto ends = run_forked(ranks, [&](RankBoard& board, int rank) {
    setenv("GYRE_TIMEOUT", "20", 1);
    gyreComm_t comm = meet(board, rank, ranks);
    expect_sum(board, comm);
    body(board, rank, comm);
    expect_sum(board, comm);
    board.expect(gyreCommDestroy(comm));
  });
  CHECK(ends == std::vector<int>(ranks, 0));
}

// In a function that Gyre calls: the child returns from it, as a program may that knows nothing of
// this.
struct Forking {
  RankBoard* board;
  pid_t child = 0;
};
void fork_here(gyreStream_t, gyreResult_t, void* user) {
  auto& forking = *static_cast<Forking*>(user);
  forking.child = fork();
  if (forking.child < 0) forking.board->complain("no fork");
  has_lost_stacks = forking.child == 0;
  if (forking.child == 0) alarm(30);
}

void fork_in_callback(RankBoard& board, int rank, gyreComm_t comm, unsigned flags) {
  if (rank != 0) return;
  Forking forking{&board};
  gyreStream_t stream = nullptr;
  board.expect(gyreStreamCreateWithFlags(&stream, flags));
  gyreResult_t result = gyreStreamAddCallback(stream, fork_here, &forking);
  if (result == gyreSuccess) result = gyreStreamSynchronize(stream);
  if (forking.child == 0) {  // a stream that its caller drives calls back here
    expect_refused(board, result, "what came back from the callback");
    expect_refused(board, gyreBarrier(comm, nullptr), "a barrier");
    _exit(0);
  }
  board.expect(result);
  int status = -1;
  if (waitpid(forking.child, &status, 0) != forking.child || status != 0)
    board.complain("the child ended with " + std::to_string(status));
  board.expect(gyreStreamDestroy(stream));
}

}  // namespace

int __lsan_is_turned_off() { return has_lost_stacks ? 1 : 0; }

TEST_CASE("a child drops the group that its parent had opened", "[fork]") {
  run([](RankBoard& board, int rank, gyreComm_t comm) {
    int one = 1, sum = 0;
    board.expect(gyreGroupStart());
    board.expect(gyreAllReduce(&one, &sum, 1, gyreInt32, gyreSum, comm, nullptr));
    if (rank == 0)
      in_child(board, [&] { expect_refused(board, gyreGroupEnd(), "ending the group"); });
    board.expect(gyreGroupEnd());
    if (sum != ranks) board.complain("a wrong sum of the group");
  });
}

TEST_CASE("a child is told that a handle is its parent's, and can make its own", "[fork]") {
  run([](RankBoard& board, int rank, gyreComm_t comm) {
    if (rank != 0) return;
    gyreStream_t stream = nullptr;
    board.expect(gyreStreamCreate(&stream));
    in_child(board, [&] {
      int value = 0;
      expect_refused(board, gyreBarrier(comm, nullptr), "a barrier");
      expect_refused(board, gyreCommDestroy(comm), "destroying");
      expect_refused(board, gyreCommAbort(comm), "aborting");
      expect_refused(board, gyreStreamSynchronize(stream), "synchronizing");
      if (gyreCommCount(reinterpret_cast<gyreComm_t>(&value), &value) != gyreInvalidArgument)
        board.complain("what was made up is not the parent's");
      gyreUniqueId id;
      gyreComm_t own = nullptr;
      board.expect(gyreGetUniqueId(&id));
      board.expect(gyreCommInitRank(&own, 1, id, 0));
      board.expect(gyreBarrier(own, nullptr));
      // And so can a child of the child, of which both are told apart.
      in_child(board, [&] {
        expect_refused(board, gyreBarrier(own, nullptr), "the parent's barrier");
        expect_refused(board, gyreBarrier(comm, nullptr), "the grandparent's barrier");
      });
      board.expect(gyreCommDestroy(own));
    });
    board.expect(gyreStreamDestroy(stream));
  });
}

TEST_CASE("a child that comes back from a callback goes on with nothing", "[fork]") {
  const unsigned flags = GENERATE(0U, unsigned{GYRE_STREAM_BY_CALLER});
  run([flags](RankBoard& board, int rank, gyreComm_t comm) {
    fork_in_callback(board, rank, comm, flags);
  });
}

TEST_CASE("gradients and meshes are the parent's too", "[fork]") {
  run([](RankBoard& board, int rank, gyreComm_t comm) {
    const gyreMeshAxis_t axis{"data", ranks};
    gyreMesh_t mesh = nullptr;
    board.expect(gyreMeshCreate(&mesh, comm, &axis, 1));
    if (rank == 0)
      in_child(board, [&] { expect_refused(board, gyreMeshDestroy(mesh), "destroying a mesh"); });
    board.expect(gyreMeshDestroy(mesh));
  });
}

}  // namespace fork_test
