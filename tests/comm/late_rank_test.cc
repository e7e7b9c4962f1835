// A rank, in a process of its own, begins large all-reduces and computes on: the waiting ranks do
// its part of the reduction meanwhile (work stealing). The test process has one thread when it
// forks.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <atomic>
#include <vector>

namespace late_rank_test {

using namespace gyre::tests;

namespace {

constexpr std::size_t count = 3U << 18;  // floats of one call: 3 MiB
constexpr int calls = 3;

// One rank's communicators, streams and memory, one of each for a call.
class Rank {
 public:
  Rank(RankBoard& board, int rank, int size) : board_(board), rank_(rank) {
    comms_.resize(calls);
    comms_[0] = meet(board, rank, size);
    for (std::size_t i = 1; i < calls; ++i)
      expect(gyreCommSplit(comms_[0], 0, rank, &comms_[i], nullptr));
    for (std::size_t i = 0; i < calls; ++i) {
      void* memory = nullptr;
      expect(gyreMemAllocOn(&memory, count * sizeof(float), GYRE_DEVICE_HOST));
      values_.push_back(static_cast<float*>(memory));
      streams_.push_back(nullptr);
      expect(gyreStreamCreateWithFlags(&streams_.back(), GYRE_STREAM_BY_CALLER));
    }
  }

  void fill() {
    for (float* one : values_)
      for (std::size_t i = 0; i < count; ++i) one[i] = static_cast<float>(rank_ + 1);
  }
  // Links are opened, and memory is mapped, with the first calls.
  void warm_up() {
    fill();
    begin();
    synchronize();
  }
  void begin() {
    for (std::size_t i = 0; i < calls; ++i)
      expect(
          gyreAllReduce(values_[i], values_[i], count, gyreFloat, gyreSum, comms_[i], streams_[i]));
  }
  void synchronize() {
    for (gyreStream_t stream : streams_) expect(gyreStreamSynchronize(stream));
  }
  // Also while others write there.
  bool holds(float sum) const {
    for (float* one : values_)
      for (std::size_t i = 0; i < count; ++i)
        if (std::atomic_ref(one[i]).load(std::memory_order_relaxed) != sum) return false;
    return true;
  }
  void end() {
    for (gyreStream_t stream : streams_) expect(gyreStreamDestroy(stream));
    for (gyreComm_t comm : comms_) expect(gyreCommDestroy(comm));
    for (float* one : values_) expect(gyreMemFree(one));
  }
  gyreComm_t comm() const { return comms_[0]; }
  void expect(gyreResult_t result) { board_.expect(result); }

 private:
  RankBoard& board_;
  const int rank_;
  std::vector<gyreComm_t> comms_;
  std::vector<gyreStream_t> streams_;
  std::vector<float*> values_;
};

// Rank 0 is late.
void take_part(RankBoard& board, int rank, int size) {
  Rank self(board, rank, size);
  self.warm_up();
  const float sum = static_cast<float>(size * (size + 1)) / 2;
  for (int round = 0; round < 3; ++round) {
    self.fill();
    self.expect(gyreBarrier(self.comm(), nullptr));
    self.begin();
    // Its sums come before it lifts a finger.
    if (rank == 0 && !comes([&] { return self.holds(sum); }))
      board.complain("the others did not do the part of the late rank");
    self.synchronize();
    if (!self.holds(sum)) board.complain("the sums are wrong");
  }
  self.end();
}

}  // namespace

TEST_CASE("those that wait reduce what a late rank has begun, in its memory, too", "[late]") {
  const int size = GENERATE(2, 3);
  const auto ends =
      run_forked(size, [&](RankBoard& board, int rank) { take_part(board, rank, size); });
  CHECK(ends == std::vector<int>(static_cast<std::size_t>(size), 0));
}

}  // namespace late_rank_test
