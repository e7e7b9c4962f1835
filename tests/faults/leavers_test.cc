// Ranks that leave early harm nobody: a later call of another rank works, or all get its error in
// time. One process a rank.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace leavers_test {

using namespace gyre::tests;

namespace {

enum class Deed { dies, aborts, leaves, talks };

struct Scene {
  int size, leaver, actor;
  Deed deed;
};

std::string text_of(const Scene& scene) {
  constexpr const char* names[] = {"dies", "aborts", "leaves", "talks"};
  return "of " + std::to_string(scene.size) + " ranks, " + std::to_string(scene.leaver) +
         " has left, and " + std::to_string(scene.actor) + " " +
         names[static_cast<int>(scene.deed)];
}

// Whom the actor talks to: the farthest in number that is there.
int listener_of(const Scene& scene) {
  const int last = scene.size - 1 - (scene.leaver == scene.size - 1 ? 1 : 0);
  const int first = scene.leaver == 0 ? 1 : 0;
  return 2 * scene.actor > scene.size ? first : last == scene.actor ? first : last;
}

void act(RankBoard& board, const Scene& scene, gyreComm_t comm) {
  int value = 77;
  switch (scene.deed) {
    case Deed::dies:
      (void)raise(SIGKILL);
      break;
    case Deed::aborts:
      board.expect(gyreCommAbort(comm));
      _exit(0);
    case Deed::leaves:
      board.expect(gyreCommDestroy(comm));
      std::exit(0);
    case Deed::talks:
      board.expect(gyreSend(&value, 1, gyreInt, listener_of(scene), comm, nullptr), comm);
      board.expect(gyreCommDestroy(comm));
  }
}

// A rank that waits for the actor, who fails.
void expect_told(RankBoard& board, const Scene& scene, gyreComm_t comm) {
  int value = 0;
  const auto start = std::chrono::steady_clock::now();
  const gyreResult_t result = gyreRecv(&value, 1, gyreInt, scene.actor, comm, nullptr);
  const std::string text = gyreGetLastError(comm);
  const bool left = scene.deed == Deed::leaves;
  if (result != (left ? gyreMismatch : gyreRemoteError) ||
      text.find("rank " + std::to_string(scene.actor) + (left ? " has left" : " (")) == text.npos)
    board.complain(text);
  if (std::chrono::steady_clock::now() - start > std::chrono::seconds(3))
    board.complain("told late: " + text);
  (void)gyreCommDestroy(comm);
}

void live(RankBoard& board, const Scene& scene, int rank) {
  const gyreComm_t comm = meet(board, rank, scene.size);
  if (rank == scene.leaver) {
    board.expect(gyreCommDestroy(comm));
    board.signed_by = 1;
    std::exit(0);
  }
  if (!comes([&] { return board.signed_by == 1; })) board.complain("nobody leaves");
  ++board.begun;
  if (rank == scene.actor) {
    if (!comes([&] { return board.begun == scene.size - 1; })) board.complain("they do not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return act(board, scene, comm);
  }
  if (scene.deed != Deed::talks) return expect_told(board, scene, comm);
  int value = 0;
  if (rank == listener_of(scene)) {
    board.expect(gyreRecv(&value, 1, gyreInt, scene.actor, comm, nullptr), comm);
    if (value != 77) board.complain("another value");
  }
  board.expect(gyreCommDestroy(comm));
}

void play(const Scene& scene) {
  INFO(text_of(scene));
  const auto ends =
      run_forked(scene.size, [&scene](RankBoard& board, int rank) { live(board, scene, rank); });
  for (int rank = 0; rank < scene.size; ++rank) {
    const bool killed = scene.deed == Deed::dies && rank == scene.actor;
    INFO("rank " << rank);
    CHECK(ends[static_cast<std::size_t>(rank)] == (killed ? SIGKILL : 0));
  }
}

constexpr Deed deeds[] = {Deed::dies, Deed::aborts, Deed::leaves, Deed::talks};

}  // namespace

// Inner processes of the control tree are 0 and 1, where there are 10 to 17.
TEST_CASE("after a rank has left, others are told, and can talk", "[leavers]") {
  for (const Deed deed : deeds)
    for (const auto& [leaver, actor] : {std::pair(0, 1), {1, 9}, {1, 0}, {0, 10}})
      play({11, leaver, actor, deed});
  play({16, 1, 15, Deed::talks});
}

TEST_CASE("after any inner rank has left, any other one does anything", "[.soak]") {
  for (const int size : {11, 16})
    for (const int leaver : {0, 1})
      for (int actor = 0; actor < size; ++actor)
        for (const Deed deed : deeds)
          if (actor != leaver) play({size, leaver, actor, deed});
}

TEST_CASE("a program may end at once when gyreCommDestroy has returned") {
  for (int i = 0; i < 40; ++i) {
    const auto ends = run_forked(2, [](RankBoard& board, int rank) {
      const gyreComm_t comm = meet(board, rank, 2);
      if (rank == 1) {
        // They hold the communicator for moments, and may be the last that do.
        for (int thread = 0; thread < 3; ++thread)
          std::thread([comm] {
            gyreResult_t state = gyreSuccess;
            while (gyreCommGetAsyncError(comm, &state) == gyreSuccess) continue;
          }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        board.expect(gyreCommDestroy(comm));
        board.signed_by = 1;
        _exit(0);
      }
      REQUIRE(comes([&] { return board.signed_by.load() == 1; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its death would be told
      gyreResult_t state = gyreSuccess;
      board.expect(gyreCommGetAsyncError(comm, &state));
      board.expect(state, comm);
      board.expect(gyreCommDestroy(comm));
    });
    CHECK(ends == std::vector<int>{0, 0});
  }
}

}  // namespace leavers_test
