// The k-th allocation of a rank's thread fails, for every k, in every kind of call. The rank gets
// an error or succeeds, the other rank gets the error, and nobody waits for a deadline.
#include "tests/support/base/failing_allocations.h"
#include "tests/support/base/page_trap.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>
#include <gyre/gyre.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>

namespace no_memory_test {

using namespace gyre::tests;

namespace {

constexpr int ranks = 2;

// What a rank does with its communicator; memory of its own is there before.
using Values = std::span<float>;
using Calls = std::function<gyreResult_t(int rank, gyreComm_t comm, Values given, Values got)>;

// Two buffers of a rank. Whoever touches them once they are closed ends the process.
class CallMemory {
 public:
  explicit CallMemory(std::size_t count) : count_(count) {
    REQUIRE(memory_ != MAP_FAILED);
    std::ranges::fill(given(), 1);
  }
  ~CallMemory() { munmap(memory_, bytes()); }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;
  Values given() const { return {static_cast<float*>(memory_), count_}; }
  Values got() const { return {static_cast<float*>(memory_) + count_, count_}; }
  void close() const { (void)mprotect(memory_, bytes(), PROT_NONE); }

 private:
  std::size_t bytes() const { return 2 * count_ * sizeof(float); }

  const std::size_t count_;
  void* const memory_ =
      mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

struct Kind {
  const char* name;
  std::size_t count;
  Calls calls;
};

const Kind kinds[] = {
    {"a small all-reduce", 4,
     [](int, gyreComm_t comm, Values given, Values got) {
       return gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm,
                            nullptr);
     }},
    {"a small all-reduce that repeats, and waits", 4,
     [](int rank, gyreComm_t comm, Values given, Values got) {
       gyreResult_t result = gyreSuccess;
       for (int i = 0; i < 3 && result == gyreSuccess; ++i) {
         if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
         result = gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm,
                                nullptr);
       }
       return result == gyreSuccess && got[3] != ranks ? gyreInternalError : result;
     }},
    {"short receives that wait", 4,
     [](int rank, gyreComm_t comm, Values given, Values got) {
       gyreResult_t result = gyreSuccess;
       for (std::size_t i = 0; i < 4; ++i) {
         if (rank == 1) {
           std::this_thread::sleep_for(std::chrono::milliseconds(3));
           given[i] = static_cast<float>(i);
           result = gyreSend(&given[i], 1, gyreFloat, 0, comm, nullptr);
         } else {
           result = gyreRecv(&got[i], 1, gyreFloat, 1, comm, nullptr);
         }
         if (result != gyreSuccess) return result;
         if (rank == 0 && got[i] != static_cast<float>(i)) return gyreInternalError;
       }
       return result;
     }},
    {"a large all-reduce", 300'000,
     [](int, gyreComm_t comm, Values given, Values got) {
       return gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm,
                            nullptr);
     }},
    {"an all-to-all", 5000,
     [](int, gyreComm_t comm, Values given, Values got) {
       return gyreAlltoAll(given.data(), got.data(), given.size() / ranks, gyreFloat, comm,
                           nullptr);
     }},
    {"a send and a receive", 5000,
     [](int rank, gyreComm_t comm, Values given, Values got) {
       (void)gyreGroupStart();
       (void)gyreSend(given.data(), given.size(), gyreFloat, 1 - rank, comm, nullptr);
       (void)gyreRecv(got.data(), got.size(), gyreFloat, 1 - rank, comm, nullptr);
       return gyreGroupEnd();
     }},
    {"a group of two all-reduces", 4000,
     [](int, gyreComm_t comm, Values given, Values got) {
       const std::size_t half = given.size() / 2;
       (void)gyreGroupStart();
       for (const std::size_t first : {std::size_t{0}, half})
         (void)gyreAllReduce(&given[first], &got[first], half, gyreFloat, gyreSum, comm, nullptr);
       const gyreResult_t done = gyreGroupEnd();
       const bool is_right = got.front() == ranks && got.back() == ranks;
       return done == gyreSuccess && !is_right ? gyreInternalError : done;
     }},
    {"a split", 1,
     [](int rank, gyreComm_t comm, Values, Values) {
       gyreComm_t part = nullptr;
       const gyreResult_t split = gyreCommSplit(comm, 0, rank, &part, nullptr);
       if (split == gyreSuccess) (void)gyreCommDestroy(part);
       return split;
     }},
    {"an all-reduce on a stream", 5000,
     [](int, gyreComm_t comm, Values given, Values got) {
       gyreStream_t stream = nullptr;
       if (const gyreResult_t made = gyreStreamCreateWithFlags(&stream, GYRE_STREAM_BY_CALLER);
           made != gyreSuccess)
         return made;
       const gyreResult_t queued =
           gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm, stream);
       const gyreResult_t done = gyreStreamDestroy(stream);
       return queued == gyreSuccess ? done : queued;
     }},
};

// False when the call makes fewer allocations than that. A rank that fails gives up, as a program
// does.
bool fail_at(int k, const Kind& kind) {
  const std::array<CallMemory, ranks> memory = {CallMemory(kind.count), CallMemory(kind.count)};
  std::array<gyreResult_t, ranks> results{};
  bool has_failed = false;
  std::barrier all_have_joined(ranks);
  on_ranks(ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto place = static_cast<std::size_t>(rank);
    all_have_joined.arrive_and_wait();
    if (rank == 0) until_failure = k;
    results[place] = kind.calls(rank, comm, memory[place].given(), memory[place].got());
    memory[place].close();
    const int left = std::exchange(until_failure, 0);
    if (rank == 0) has_failed = left == 0;
    complaints.expect(results[place] != gyreTimeout && results[place] != gyreInternalError,
                      std::string(kind.name) + ": " + gyreGetLastError(nullptr));
    if (results[place] != gyreSuccess) (void)gyreCommAbort(comm);
  });
  if (has_failed)
    CHECK((results[0] == gyreSuccess || results[0] == gyreSystemError ||
           results[0] == gyreRemoteError));
  else
    CHECK(results == std::array<gyreResult_t, ranks>{});
  return has_failed;
}

}  // namespace

TEST_CASE("an allocation that fails is an error, whichever it is", "[memory]") {
  const WithVariables set(Variables{{"GYRE_TIMEOUT", "20"},
                                    {"GYRE_SOCKET_IFNAME", "lo"},
                                    {"GYRE_TRANSPORT", GENERATE("shm", "tcp")}});
  for (const Kind& kind : kinds) {
    int k = 1;
    INFO(kind.name);
    while (fail_at(k, kind)) ++k;
    CHECK(k > 1);
  }
}

namespace {

void wait_for(const std::atomic<bool>& word, int most_ms) {
  for (int i = 0; i < most_ms && !word; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// An all-reduce whose move allocates: of 16-bit products, which peers get rounded.
gyreResult_t reduce_products(const CallMemory& memory, std::size_t pages, gyreComm_t comm,
                             gyreRedOp_t op) {
  return gyreAllReduce(memory.given().data(), memory.got().data(), pages * PageTrap::page_bytes / 2,
                       gyreFloat16, op, comm, nullptr);
}

// False when the call makes fewer allocations than k. While that one fails, rank 1 stands still in
// rank 0's output, until rank 0's call has returned or has had time to.
bool fail_while_in_use(int k, int& held) {
  constexpr std::size_t pages = 150;
  const CallMemory memory[ranks] = {CallMemory(pages * 1024), CallMemory(pages * 1024)};
  std::atomic<bool> in_use{false}, has_returned{false}, has_failed{false};
  const Values got = memory[0].got();  // its second half has what rank 1 sums, from the begin on
  const PageTrap trap(&got[got.size() / 2], [&] {
    in_use = true;
    wait_for(has_returned, 300);
    in_use = false;
  });
  on_ranks(ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::uint16_t two = 0x4000;
    gyreRedOp_t op = gyreSum;
    complaints.expect(gyreRedOpCreatePreMulSum(&op, &two, gyreFloat16, gyreScalarHostImmediate,
                                               comm) == gyreSuccess,
                      gyreGetLastError(comm));
    // So that all is open for a call of more, which begins to move at once.
    complaints.expect(reduce_products(memory[rank], 2, comm, op) == gyreSuccess,
                      gyreGetLastError(comm));
    if (rank == 0) {  // rank 1 is in the call then
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      before_failure = [&] { wait_for(in_use, 300); };
      until_failure = k;
    }
    const gyreResult_t result = reduce_products(memory[rank], pages, comm, op);
    if (rank != 0) return;
    has_failed = std::exchange(until_failure, 0) == 0;
    held += has_failed && trap.is_sprung();
    complaints.expect(!in_use, "its buffer is still in use");
    has_returned = true;
    if (result != gyreSuccess) (void)gyreCommAbort(comm);
  });
  before_failure = [] {};
  return has_failed;
}

}  // namespace

TEST_CASE("a call whose allocation fails returns when the peer has let go of its buffer",
          "[memory]") {
  const WithVariables set(
      Variables{{"GYRE_TIMEOUT", "20"}, {"GYRE_ALGO", "twoshot"}, {"GYRE_PROTO", "Direct"}});
  int k = 1, held = 0;
  while (fail_while_in_use(k, held)) ++k;
  CHECK(held > 0);
}

// A function of each library that fails, and the one that says why.
struct Library {
  const char* name;
  gyreResult_t (*fail)();
  const char* (*say_why)();
};

const Library libraries[] = {
    {"gyre", [] { return gyreBarrier(nullptr, nullptr); },
     [] { return gyreGetLastError(nullptr); }},
    {"gyre, in a group",
     [] {
       (void)gyreGroupStart();
       (void)gyreBarrier(nullptr, nullptr);
       return gyreGroupEnd();
     },
     [] { return gyreGetLastError(nullptr); }},
    {"gradsync", [] { return gyreGradWait(nullptr); }, gyreGradGetLastError},
};

TEST_CASE("a thread that has no memory at all gets a code, and words that need none",
          "[no memory]") {
  for (const Library& library : libraries) {
    CAPTURE(library.name);
    REQUIRE(library.fail() != gyreSuccess);  // what is made once is there
    for (const bool is_known : {false, true}) {
      gyreResult_t result = gyreSuccess;
      std::string why, thrown;
      std::thread([&] {
        if (is_known) (void)library.fail();
        char said[64] = {};
        all_fail = true;
        try {
          result = library.fail();
          std::strncpy(said, library.say_why(), sizeof said - 1);
        } catch (...) {
          all_fail = false;
          thrown = "something came out of a C function";
        }
        all_fail = false;
        why = said;
      }).join();
      CHECK(thrown.empty());
      CHECK(result == gyreSystemError);
      CHECK(why == "out of memory");
    }
  }
}

// True if the k-th allocation of gyreCommInitAll is one and failed.
bool fail_to_begin_all(int k) {
  std::array<gyreComm_t, 3> comms;
  comms.fill(reinterpret_cast<gyreComm_t>(&comms));
  const std::array<int, 3> devices{GYRE_DEVICE_HOST, GYRE_DEVICE_HOST, GYRE_DEVICE_HOST};
  const auto before = std::chrono::steady_clock::now();
  until_failure = k;
  const gyreResult_t result = gyreCommInitAll(comms.data(), 3, devices.data());
  const bool has_failed = std::exchange(until_failure, 0) == 0;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  CAPTURE(k, gyreGetLastError(nullptr));
  CHECK(took.count() < 5);
  CHECK((has_failed || result == gyreSuccess));
  for (gyreComm_t comm : comms) {
    if (result != gyreSuccess) CHECK(comm == nullptr);
    if (result == gyreSuccess) CHECK(gyreCommDestroy(comm) == gyreSuccess);
  }
  CHECK(gyreGroupEnd() == gyreInvalidUsage);  // no group was left open
  return has_failed;
}

TEST_CASE("all ranks of a process begin, or none is left behind", "[memory]") {
  const WithVariables set(Variables{{"GYRE_INIT_TIMEOUT", "20"}});
  int k = 1;
  while (fail_to_begin_all(k)) ++k;
  CHECK(k > 30);
}

}  // namespace no_memory_test
