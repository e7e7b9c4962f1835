// The k-th allocation of a rank's thread fails, for every k, in every kind of call. The rank gets
// an error or succeeds, the other rank gets the error, and nobody waits for a deadline.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>
#include <gyre/gyre.h>

#include <array>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace gyre::tests;

namespace {

// Of this thread: how many allocations are left until one fails; 0: none does.
thread_local int until_failure = 0;
thread_local bool all_fail = false;

void* allocate(std::size_t bytes) {
  if (all_fail || (until_failure > 0 && --until_failure == 0)) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (all_fail || (until_failure > 0 && --until_failure == 0)) throw std::bad_alloc();
  void* const memory =
      std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// std::stable_sort's, which goes on without a buffer.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

constexpr int ranks = 2;

// What a rank does with its communicator; memory of its own is there before.
using Calls = std::function<gyreResult_t(int rank, gyreComm_t comm, std::vector<float>& given,
                                         std::vector<float>& got)>;

struct Kind {
  const char* name;
  std::size_t count;
  Calls calls;
};

const Kind kinds[] = {
    {"a small all-reduce", 4,
     [](int, gyreComm_t comm, std::vector<float>& given, std::vector<float>& got) {
       return gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm,
                            nullptr);
     }},
    {"a large all-reduce", 300'000,
     [](int, gyreComm_t comm, std::vector<float>& given, std::vector<float>& got) {
       return gyreAllReduce(given.data(), got.data(), given.size(), gyreFloat, gyreSum, comm,
                            nullptr);
     }},
    {"an all-to-all", 5000,
     [](int, gyreComm_t comm, std::vector<float>& given, std::vector<float>& got) {
       return gyreAlltoAll(given.data(), got.data(), given.size() / ranks, gyreFloat, comm,
                           nullptr);
     }},
    {"a send and a receive", 5000,
     [](int rank, gyreComm_t comm, std::vector<float>& given, std::vector<float>& got) {
       (void)gyreGroupStart();
       (void)gyreSend(given.data(), given.size(), gyreFloat, 1 - rank, comm, nullptr);
       (void)gyreRecv(got.data(), got.size(), gyreFloat, 1 - rank, comm, nullptr);
       return gyreGroupEnd();
     }},
    {"a split", 1,
     [](int rank, gyreComm_t comm, std::vector<float>&, std::vector<float>&) {
       gyreComm_t part = nullptr;
       const gyreResult_t split = gyreCommSplit(comm, 0, rank, &part, nullptr);
       if (split == gyreSuccess) (void)gyreCommDestroy(part);
       return split;
     }},
    {"an all-reduce on a stream", 5000,
     [](int, gyreComm_t comm, std::vector<float>& given, std::vector<float>& got) {
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
  std::array<gyreResult_t, ranks> results{};
  bool has_failed = false;
  std::barrier all_have_joined(ranks);
  on_ranks(ranks, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    const auto place = static_cast<std::size_t>(rank);
    std::vector<float> given(kind.count, 1), got(kind.count, -1);
    all_have_joined.arrive_and_wait();
    if (rank == 0) until_failure = k;
    results[place] = kind.calls(rank, comm, given, got);
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
