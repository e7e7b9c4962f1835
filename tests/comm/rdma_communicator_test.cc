// Whole communicators over rdma by fake devices, through the C API, ranks as threads: every
// collective and sends, lent memory, a port that goes down in the middle of calls, each failure of
// a verbs call, and devices that all communicators of the process share.
#include "lib/comm/process.h"
#include "tests/support/catch.h"
#include "tests/support/comm/collective_case.h"
#include "tests/support/comm/ranks.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace rdma_communicator_test {

using namespace gyre;
using namespace gyre::tests;

// The leak sanitizer asks this at the end of a process.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();

namespace {

// This is a child whose parent's other threads are gone, with the stacks that led to their memory.
bool has_lost_stacks = false;

// Fake devices in place of this machine's.
class FakeFabric {
 public:
  explicit FakeFabric(const FakeVerbsOptions& machine = {}, Variables wanted = {})
      : fake(machine), variables_(over_rdma(std::move(wanted))) {
    comm::process().verbs.use(&fake.table());
  }
  ~FakeFabric() {
    CHECK(fake.live() == "");
    CHECK(fake.unexpected() == 0);
    comm::process().verbs.use(nullptr);
  }
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  FakeVerbs fake;

 private:
  static Variables over_rdma(Variables wanted) {
    wanted.emplace("GYRE_TRANSPORT", "rdma");
    wanted.emplace("GYRE_TIMEOUT", "60");
    return wanted;
  }
  const WithVariables variables_;
};

// Memory of gyreMemAlloc.
class LentBytes {
 public:
  explicit LentBytes(std::size_t bytes) {
    if (gyreMemAllocOn(&memory_, bytes, GYRE_DEVICE_HOST) != gyreSuccess) memory_ = nullptr;
  }
  ~LentBytes() {
    if (memory_ != nullptr) (void)gyreMemFree(memory_);
  }
  LentBytes(const LentBytes&) = delete;
  LentBytes& operator=(const LentBytes&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::int32_t* numbers() const { return static_cast<std::int32_t*>(memory_); }

 private:
  void* memory_ = nullptr;
};

// The buffers of a case, lent if that is wished for.
class LentCase {
 public:
  LentCase(const CollectiveCase& one, bool is_lent) : buffers(one) {
    for (std::size_t i = 0; is_lent && i < buffers.blocks(); ++i) {
      const std::span<std::byte> block = buffers.block(i);
      if (block.empty()) continue;
      const LentBytes& place = *places_.emplace_back(std::make_unique<LentBytes>(block.size()));
      placed_.push_back(i);
      std::ranges::copy(block, place.data());
      buffers.place(i, place.data());
    }
  }
  // After all ranks have called.
  void bring_back() {
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const std::span<std::byte> block = buffers.block(placed_[i]);
      std::copy_n(places_[i]->data(), block.size(), block.data());
    }
  }
  CaseBuffers buffers;

 private:
  std::vector<std::unique_ptr<LentBytes>> places_;
  std::vector<std::size_t> placed_;  // blocks
};

constexpr Function all_functions[] = {
    Function::reduce_scatter,   Function::all_gather,   Function::broadcast,
    Function::reduce,           Function::all_to_all,   Function::gather,
    Function::scatter,          Function::all_to_all_v, Function::all_gather_v,
    Function::reduce_scatter_v, Function::all_reduce};

std::vector<CollectiveCase> cases_for(int ranks) {
  std::vector<CollectiveCase> cases;
  for (const Function function : all_functions)
    for (const bool in_place : {false, true})
      for (const std::size_t count : {0UL, 7UL, 20'011UL}) {
        CollectiveCase one{.function = function, .ranks = ranks, .type = ElementType::int32};
        one.in_place = in_place;
        one.count = count;
        one.shift = count % 2;
        one.root = ranks - 1;
        if (one.is_legal()) cases.push_back(one);
      }
  return cases;
}

std::int32_t number_of(int rank, std::size_t i, int round) {
  return rank * 1'000'003 + static_cast<std::int32_t>(i) * 7 + round;
}

// Of int32 elements: an all-reduce, and what is wrong with it.
std::string check_sum(gyreComm_t comm, int rank, int ranks, int round, const LentBytes& input,
                      const LentBytes& output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) input.numbers()[i] = number_of(rank, i, round);
  std::memset(output.data(), 0x5a, count * 4);
  if (gyreAllReduce(input.data(), output.data(), count, gyreInt32, gyreSum, comm, nullptr) !=
      gyreSuccess)
    return gyreGetLastError(comm);
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t sum = 0;
    for (int one = 0; one < ranks; ++one) sum += number_of(one, i, round);
    if (output.numbers()[i] != sum) return "element " + std::to_string(i) + " is wrong";
  }
  return {};
}

// Everybody sends to the next rank, and receives from the one before.
std::string check_sends(gyreComm_t comm, int rank, int ranks, int round, const LentBytes& input,
                        const LentBytes& output, std::size_t count) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  for (std::size_t i = 0; i < count; ++i) input.numbers()[i] = number_of(rank, i, round);
  std::memset(output.data(), 0x5a, count * 4);
  (void)gyreGroupStart();
  (void)gyreSend(input.data(), count, gyreInt32, next, comm, nullptr);
  (void)gyreRecv(output.data(), count, gyreInt32, before, comm, nullptr);
  if (gyreGroupEnd() != gyreSuccess) return gyreGetLastError(comm);
  for (std::size_t i = 0; i < count; ++i)
    if (output.numbers()[i] != number_of(before, i, round))
      return "number " + std::to_string(i) + " from rank " + std::to_string(before) + " is wrong";
  return {};
}

}  // namespace

int __lsan_is_turned_off() { return has_lost_stacks ? 1 : 0; }

TEST_CASE("every collective over rdma gives the right data, through slots or lent memory",
          "[rdma]") {
  struct Way {
    int ranks;
    std::size_t nics;
    const char *pairs, *protocol;
    bool is_lent;
    std::uint64_t seed;
  };
  const Way way = GENERATE(Way{2, 1, "1", "Simple", false, 0}, Way{3, 2, "4", "Direct", true, 0},
                           Way{4, 1, "2", "Direct", true, 0}, Way{2, 2, "1", "Direct", false, 0},
                           Way{3, 2, "2", "Direct", true, 5});
  CAPTURE(way.ranks, way.nics, way.pairs, way.protocol, way.is_lent, way.seed);
  FakeVerbsOptions machine = two_nics();
  machine.devices.resize(way.nics);
  machine.seed = way.seed;
  const FakeFabric fabric(machine, {{"GYRE_PROTO", way.protocol},
                                    {"GYRE_BUFFSIZE", "16384"},
                                    {"GYRE_IB_QPS_PER_CONNECTION", way.pairs}});
  std::unique_ptr<LentCase> now;
  std::barrier together(way.ranks);
  on_ranks(way.ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    for (const CollectiveCase& one : cases_for(way.ranks)) {
      if (rank == 0) now = std::make_unique<LentCase>(one, way.is_lent);
      together.arrive_and_wait();
      if (now->buffers.call(rank, comm) != gyreSuccess)
        complaints.add(one.shown() + ": " + gyreGetLastError(comm));
      together.arrive_and_wait();
      if (rank == 0) now->bring_back();
      together.arrive_and_wait();
      const std::string wrong = now->buffers.wrong(rank);
      if (!wrong.empty()) complaints.add(one.shown() + ": " + wrong);
      together.arrive_and_wait();
    }
  });
  now.reset();
}

TEST_CASE("NICs read and write lent memory of long calls and sends where it lies", "[rdma]") {
  constexpr std::size_t count = 1 << 20;
  const FakeFabric fabric(two_nics());
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const LentBytes input(count * 4), output(2 * count * 4);
    for (std::size_t i = 0; i < count; ++i) input.numbers()[i] = number_of(rank, i, 0);
    for (int round = 0; round < 2; ++round)
      complaints.expect(gyreAllGather(input.data(), output.data(), count, gyreInt32, comm,
                                      nullptr) == gyreSuccess,
                        gyreGetLastError(comm));
    for (int from = 0; from < 2; ++from)
      for (std::size_t i = 0; i < count; ++i)
        if (output.numbers()[static_cast<std::size_t>(from) * count + i] != number_of(from, i, 0))
          return complaints.add("element " + std::to_string(i) + " is wrong");
    // A grant may come late: then the first pieces go through slots at that end.
    complaints.expect(fabric.fake.bytes_from(input.data()) >= count * 4, "input was copied");
    complaints.expect(fabric.fake.bytes_into(output.data()) >= count * 4, "output was copied");
    const std::uint64_t before = fabric.fake.bytes_from(input.data());
    const std::string wrong = check_sends(comm, rank, 2, 1, input, output, count);
    complaints.expect(wrong.empty(), wrong);
    complaints.expect(fabric.fake.bytes_from(input.data()) > before + count * 2,
                      "what was sent was copied");
  });
}

TEST_CASE("a port that goes down in the middle of calls costs no byte of their results", "[rdma]") {
  FakeVerbsOptions machine = two_nics();
  machine.seed = GENERATE(1U, 2U, 3U);
  const char* const lost = GENERATE("fake0", "fake1");
  const char* const protocol = GENERATE("Direct", "Simple");
  CAPTURE(machine.seed, lost, protocol);
  FakeFabric fabric(machine, {{"GYRE_PROTO", protocol}, {"GYRE_BUFFSIZE", "65536"}});
  constexpr std::size_t count = 200'000;
  constexpr int ranks = 3, rounds_after = 3, max_rounds = 1000;
  const char* const other = lost == std::string("fake0") ? "fake1" : "fake0";
  std::atomic<bool> is_over{false};
  std::atomic<int> is_down{0};
  std::uint64_t left_before = 0, other_before = 0;
  std::thread breaker([&] {
    while (fabric.fake.bytes_by(lost) < machine.seed << 20 && !is_over) std::this_thread::yield();
    fabric.fake.set_port(lost, 1, IBV_PORT_DOWN);
    left_before = fabric.fake.bytes_by(lost);
    other_before = fabric.fake.bytes_by(other);
    is_down = 1;
    for (; !is_over; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      fabric.fake.give_up();
  });
  on_ranks(ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const LentBytes input(count * 4), output(count * 4);
    int after = 0;
    for (int round = 0; after < rounds_after && round < max_rounds; ++round) {
      const std::string sum = check_sum(comm, rank, ranks, round, input, output, count);
      const std::string sent = check_sends(comm, rank, ranks, round, input, output, count);
      complaints.expect(sum.empty() && sent.empty(), sum + sent);
      // Whether all have seen it: so all end after the same round.
      const std::int32_t seen = is_down;
      std::int32_t by_all = 1;
      complaints.expect(
          gyreAllReduce(&seen, &by_all, 1, gyreInt32, gyreMin, comm, nullptr) == gyreSuccess,
          gyreGetLastError(comm));
      after += by_all;
    }
  });
  is_over = true;
  breaker.join();
  // The rest went over the other port, and it was not little.
  CHECK(fabric.fake.bytes_by(lost) == left_before);
  CHECK(fabric.fake.bytes_by(other) > other_before + (4 << 20));
}

namespace {

// A communicator of two ranks, from its beginning to its end; all results that are none.
std::vector<std::string> live_in_communicator() {
  constexpr std::size_t count = 30'000;
  constexpr int ranks = 2;
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  std::vector<std::string> found;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      gyreComm_t comm = nullptr;
      std::string failed;
      if (gyreCommInitRank(&comm, ranks, id, rank) != gyreSuccess) {
        failed = gyreGetLastError(nullptr);
        comm = nullptr;
      }
      {
        const LentBytes input(count * 4), output(count * 4);
        if (failed.empty()) failed = check_sum(comm, rank, ranks, 0, input, output, count);
        if (failed.empty()) failed = check_sends(comm, rank, ranks, 1, input, output, count);
      }
      if (comm != nullptr) {
        const gyreResult_t ended = failed.empty() ? gyreCommDestroy(comm) : gyreCommAbort(comm);
        if (failed.empty() && ended != gyreSuccess) failed = gyreGetLastError(nullptr);
      }
      const std::lock_guard lock(mutex);
      if (!failed.empty()) found.push_back(failed);
    });
  for (std::thread& thread : threads) thread.join();
  return found;
}

}  // namespace

TEST_CASE("every failure of a verbs call is an error or harmless, and leaves nothing behind",
          "[rdma]") {
  const bool has_two = GENERATE(false, true);
  int failures = 0;
  for (const std::string_view call : fallible_verbs())
    for (int k = 1;; k += 1 + k / 4) {
      CAPTURE(has_two, call, k);
      FakeFabric fabric(has_two ? two_nics() : FakeVerbsOptions(),
                        {{"GYRE_PROTO", "Direct"}, {"GYRE_BUFFSIZE", "16384"}});
      fabric.fake.fail_call(call, k);
      const auto begun = std::chrono::steady_clock::now();
      for (const std::string& failed : live_in_communicator()) {
        INFO(failed);
        CHECK(failed.find("is wrong") == failed.npos);
        ++failures;
      }
      // Far from the deadline of a call.
      CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
      if (fabric.fake.calls(call) < k) break;
    }
  CHECK(failures > 0);
}

TEST_CASE("all communicators of a process share one opened device, and the last one closes it",
          "[rdma]") {
  const FakeFabric fabric;
  for (int turn = 1; turn <= 2; ++turn) {
    on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
      gyreComm_t child = nullptr;
      complaints.expect(gyreCommSplit(comm, 0, rank, &child, nullptr) == gyreSuccess,
                        gyreGetLastError(comm));
      const LentBytes input(4), output(4);
      for (const gyreComm_t one : {comm, child})
        complaints.expect(check_sum(one, rank, 2, 0, input, output, 1).empty(), "a wrong sum");
      complaints.expect(fabric.fake.calls("open_device") == turn, "the device was opened again");
      complaints.expect(gyreCommDestroy(child) == gyreSuccess, gyreGetLastError(child));
    });
    CHECK(fabric.fake.live() == "");
  }
}

TEST_CASE("a device that has failed is opened anew for communicators that come later", "[rdma]") {
  FakeFabric fabric;
  std::barrier together(2);
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const LentBytes input(4), output(4);
    complaints.expect(check_sum(comm, rank, 2, 0, input, output, 1).empty(), "a wrong sum");
    together.arrive_and_wait();
    if (rank == 0) fabric.fake.fail_device("fake0");
    together.arrive_and_wait();
    gyreComm_t later = nullptr;
    complaints.expect(gyreCommSplit(comm, 0, rank, &later, nullptr) == gyreSuccess,
                      gyreGetLastError(comm));
    complaints.expect(check_sum(later, rank, 2, 0, input, output, 1).empty(), "a wrong sum later");
    complaints.expect(fabric.fake.calls("open_device") == 2, "it was not opened anew");
    complaints.expect(gyreCommDestroy(later) == gyreSuccess, gyreGetLastError(later));
  });
}

// The thread sanitizer does not follow a process of several threads into its child.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a forked child opens devices of its own, and leaves its parent's alone", "[rdma]") {
  const FakeFabric fabric;
  (void)std::fflush(nullptr);
  std::barrier together(2);
  on_ranks(2, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const LentBytes input(4), output(4);
    complaints.expect(check_sum(comm, rank, 2, 0, input, output, 1).empty(), "a wrong sum");
    together.arrive_and_wait();  // nobody is in the fake
    if (rank == 0) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(30);
        loaded::SharedVerbs& verbs = comm::process().verbs;
        verbs.use(&fabric.fake.table());
        int count = 0;
        ibv_device** const list = fabric.fake.table().device_list(&count);
        const bool is_own = verbs.open(list[0]).ok() && fabric.fake.calls("open_device") == 2;
        const bool is_refused = gyreCommDestroy(comm) == gyreInvalidUsage;
        // With all that a program does at its end.
        has_lost_stacks = true;
        std::exit(is_own && is_refused ? 0 : 1);
      }
      int status = -1;
      complaints.expect(waitpid(child, &status, 0) == child && status == 0,
                        "the child ended with " + std::to_string(status));
    }
    together.arrive_and_wait();
    complaints.expect(check_sum(comm, rank, 2, 1, input, output, 1).empty(), "a wrong sum after");
    complaints.expect(fabric.fake.calls("open_device") == 1, "opened again");
  });
}
#endif

}  // namespace rdma_communicator_test
