// A process stops in the middle of all-reduces of lent memory (a debugger, a frozen container, a
// paused machine). It continues after the others have given up and reuse their buffers. It writes
// nothing into those buffers, no rank returns a wrong sum as a right one, and data that other
// threads write in the same pages stays. The test process has one thread when it forks.
#include "tests/support/catch.h"
#include "tests/support/comm/forked_ranks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace stopped_rank_test {

using namespace gyre::tests;

namespace {

constexpr int max_processes = 4;

struct Trial {
  int processes, ranks_each, victim;  // the victim: a process
  std::size_t count;                  // of int32
  std::size_t shift;                  // of the buffers in their pages, in bytes
  bool in_place;
  int stop_after_us, stopped_us;
  bool grouped;  // each all-reduce with a message to the next rank beside it
  int ranks() const { return processes * ranks_each; }
  int stopper() const { return victim == 0 ? 1 : 0; }
};

Trial draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Trial trial{};
  trial.processes = between(2, max_processes);
  trial.ranks_each = trial.processes == 4 ? 1 : between(1, 2);
  trial.victim = between(0, trial.processes - 1);
  trial.count = static_cast<std::size_t>(between(1 << 18, 1 << 21)) / 64 * 64 + 5;
  trial.shift = static_cast<std::size_t>(between(1, 255)) * 8;
  trial.in_place = between(0, 3) == 0;
  trial.stop_after_us = between(0, 40'000);
  trial.stopped_us = between(0, 30'000);
  trial.grouped = between(0, 2) == 0;
  return trial;
}

// What the processes of a trial tell each other besides.
struct Stage {
  std::atomic<int> pids[max_processes];
  std::atomic<int> given_up{0};  // ranks that have put something else into their buffers
  std::atomic<int> awake{0};     // ranks of the victim that have ended their calls
};

// A region of gyreMemAlloc with an input and an output at odd places, and a neighbour before,
// between and behind them, each of which shares a page with a buffer.
class Buffers {
 public:
  Buffers(RankBoard& board, const Trial& trial, int rank)
      : bytes_(trial.count * sizeof(std::int32_t)),
        rank_(rank),
        ranks_(trial.ranks()),
        grouped_(trial.grouped) {
    const std::size_t input = trial.shift + neighbour_bytes;
    const std::size_t output =
        trial.in_place ? input : (input + bytes_ + 2 * neighbour_bytes) / 8 * 8;
    const std::size_t all = output + bytes_ + neighbour_bytes;
    void* memory = nullptr;
    board.expect(gyreMemAllocOn(&memory, all, GYRE_DEVICE_HOST));
    memory_ = static_cast<std::byte*>(memory);
    in_ = reinterpret_cast<std::int32_t*>(memory_ + input);
    out_ = reinterpret_cast<std::int32_t*>(memory_ + output);
    for (const std::size_t place : {input, output}) {
      neighbours_.push_back(word(place - neighbour_bytes));
      neighbours_.push_back(word((place + bytes_ + 7) / 8 * 8));
    }
    std::ranges::sort(neighbours_);
    neighbours_.erase(std::unique(neighbours_.begin(), neighbours_.end()), neighbours_.end());
    for (std::size_t i = 0; i < trial.count; ++i) in_[i] = value(rank, i);
    sum_.resize(trial.count);
    for (int other = 0; other < trial.ranks(); ++other)
      for (std::size_t i = 0; i < trial.count; ++i) sum_[i] += value(other, i);
    given_.assign(in_, in_ + trial.count);
  }
  ~Buffers() { (void)gyreMemFree(memory_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  gyreResult_t call(gyreComm_t comm) {
    if (in_ == out_) std::ranges::copy(given_, in_);
    if (!grouped_) return sum_up(comm);
    int note = rank_, noted = 0;
    (void)gyreGroupStart();
    (void)sum_up(comm);
    (void)gyreSend(&note, 1, gyreInt32, (rank_ + 1) % ranks_, comm, nullptr);
    (void)gyreRecv(&noted, 1, gyreInt32, (rank_ + ranks_ - 1) % ranks_, comm, nullptr);
    return gyreGroupEnd();
  }
  bool is_summed() const { return std::equal(sum_.begin(), sum_.end(), out_); }

  // Something else, which is nobody's sum.
  void reuse() {
    std::fill_n(in_, sum_.size(), pattern());
    std::fill_n(out_, sum_.size(), pattern());
  }
  std::size_t foreign() const {
    const auto is_foreign = [this](std::int32_t value) { return value != pattern(); };
    return static_cast<std::size_t>(std::count_if(in_, in_ + sum_.size(), is_foreign) +
                                    std::count_if(out_, out_ + sum_.size(), is_foreign));
  }

  // Another thread's, until `over`: how many of its stores were lost.
  std::size_t write_beside(const std::atomic<bool>& over) {
    std::size_t lost = 0;
    for (std::uint64_t turn = 1; !over; ++turn) {
      for (volatile std::uint64_t* const neighbour : neighbours_) {
        if (turn > 1 && *neighbour != turn - 1) ++lost;
        *neighbour = turn;
      }
      if (turn % 16 == 0) std::this_thread::yield();  // what else runs has its turn
    }
    return lost;
  }

 private:
  static constexpr std::size_t neighbour_bytes = 64;
  gyreResult_t sum_up(gyreComm_t comm) {
    return gyreAllReduce(in_, out_, sum_.size(), gyreInt32, gyreSum, comm, nullptr);
  }
  static std::int32_t value(int rank, std::size_t i) {
    return static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(rank) * 1009);
  }
  std::int32_t pattern() const { return 0x5a5a0000 + rank_; }
  volatile std::uint64_t* word(std::size_t place) {
    return reinterpret_cast<volatile std::uint64_t*>(memory_ + place);
  }

  const std::size_t bytes_;
  const int rank_, ranks_;
  const bool grouped_;
  std::byte* memory_ = nullptr;
  std::int32_t* in_ = nullptr;
  std::int32_t* out_ = nullptr;
  std::vector<volatile std::uint64_t*> neighbours_;
  std::vector<std::int32_t> sum_, given_;
};

bool is_stopped(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t behind_name = text.rfind(')');
  return behind_name != std::string::npos && text.compare(behind_name, 3, ") T") == 0;
}

// Calls until one fails.
void call_on(RankBoard& board, Buffers& buffers, gyreComm_t comm) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (buffers.call(comm) == gyreSuccess) {
    if (!buffers.is_summed()) return board.complain("a wrong sum with success");
    if (std::chrono::steady_clock::now() > until) return board.complain("no call failed");
  }
}

void give_up(RankBoard& board, Stage& stage, const Trial& trial, Buffers& buffers) {
  buffers.reuse();
  ++stage.given_up;
  if (!comes([&] { return stage.awake == trial.ranks_each; }))
    return board.complain("the one that was stopped does not end its calls");
  if (const std::size_t foreign = buffers.foreign(); foreign != 0)
    board.complain(std::to_string(foreign) + " elements written after the call had returned");
}

void be_rank(RankBoard& board, Stage& stage, const Trial& trial, int process, int rank,
             std::atomic<gyreComm_t>& shown) {
  gyreComm_t comm = meet(board, rank, trial.ranks());
  Buffers buffers(board, trial, rank);
  std::atomic<bool> over{false};
  std::size_t lost = 0;
  std::thread beside([&] { lost = buffers.write_beside(over); });
  board.expect(buffers.call(comm), comm);  // the links are there
  shown = comm;
  ++board.begun;
  call_on(board, buffers, comm);
  (void)gyreCommAbort(comm);
  if (process == trial.victim)
    ++stage.awake;
  else
    give_up(board, stage, trial, buffers);
  over = true;
  beside.join();
  if (lost != 0) board.complain(std::to_string(lost) + " stores beside the buffers were lost");
  ++board.signed_by;
  if (!comes([&] { return board.signed_by == trial.ranks(); })) board.complain("not all ended");
}

// From the process that stops the victim, and gives up on it.
void stop_victim(RankBoard& board, Stage& stage, const Trial& trial, gyreComm_t comm) {
  const int pid = stage.pids[trial.victim];
  usleep(static_cast<useconds_t>(trial.stop_after_us));
  kill(pid, SIGSTOP);
  if (!comes([&] { return is_stopped(pid); })) board.complain("it does not stop");
  usleep(static_cast<useconds_t>(trial.stopped_us));
  (void)gyreCommAbort(comm);
  const int others = trial.ranks() - trial.ranks_each;
  if (!comes([&] { return stage.given_up == others; })) board.complain("not all have given up");
  kill(pid, SIGCONT);
}

void be_process(RankBoard& board, Stage& stage, const Trial& trial, int process) {
  setenv("GYRE_LIVENESS_TIMEOUT", "1", 1);
  stage.pids[process] = getpid();
  const auto ranks = static_cast<std::size_t>(trial.ranks_each);
  std::vector<std::atomic<gyreComm_t>> shown(ranks);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks; ++i)
    threads.emplace_back([&, i] {
      const int rank = process * trial.ranks_each + static_cast<int>(i);
      be_rank(board, stage, trial, process, rank, shown[i]);
    });
  if (process == trial.stopper()) {
    if (!comes([&] { return board.begun == trial.ranks(); })) board.complain("not all began");
    stop_victim(board, stage, trial, shown[0]);
  }
  for (std::thread& thread : threads) thread.join();
}

void run_trial(std::uint32_t seed) {
  const Trial trial = draw(seed);
  void* const memory =
      mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  Stage& stage = *new (memory) Stage;
  INFO("seed " << seed << ": " << trial.processes << " processes of " << trial.ranks_each
               << " ranks, process " << trial.victim << " stops after " << trial.stop_after_us
               << " us; replay: stopped_rank_test replay --rng-seed " << seed);
  const auto ends = run_forked(trial.processes, [&](RankBoard& board, int process) {
    be_process(board, stage, trial, process);
  });
  CHECK(ends == std::vector<int>(static_cast<std::size_t>(trial.processes), 0));
  REQUIRE(munmap(memory, sizeof(Stage)) == 0);
}

void run_many(std::uint32_t trials) {
  for (std::uint32_t i = 0; i < trials; ++i) run_trial(rng_seed() * 100'000 + i);
}

}  // namespace

TEST_CASE("who was stopped writes nothing into buffers whose call has returned", "[stopped]") {
  run_many(32);
}

TEST_CASE("replay", "[.replay]") { run_trial(rng_seed()); }

TEST_CASE("soak: stopped at a thousand instants", "[.soak]") { run_many(1000); }

}  // namespace stopped_rank_test
