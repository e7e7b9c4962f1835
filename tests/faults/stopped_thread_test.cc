// A rank's thread stops in the middle of a move, for longer than any limit on processes. The call
// of another rank of the process fails meanwhile. Its buffer belongs to its caller again only when
// the stopped thread no longer uses it.
#include "tests/support/base/page_trap.h"
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gyre.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <thread>

namespace stopped_thread_test {

using namespace gyre::tests;

TEST_CASE("a failed call keeps its buffer until every thread of the process has let go of it",
          "[comm]") {
  // A broadcast along 0, 1, 2: rank 1 alone reads where rank 0 has the values and writes to where
  // rank 2 gets them.
  const int owner = GENERATE(0, 2);
  CAPTURE(owner);
  constexpr std::size_t bytes = 64 << 10;
  constexpr auto stop = std::chrono::milliseconds(1500);
  const WithVariables variables(Variables{{"GYRE_PROTO", "Direct"}, {"GYRE_ALGO", "ring"}});
  const auto unmap = [](void* memory) { munmap(memory, 3 * bytes); };
  const std::unique_ptr<void, decltype(unmap)> memory(
      mmap(nullptr, 3 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), unmap);
  REQUIRE(memory.get() != MAP_FAILED);
  const auto values = [&](int rank) {
    return static_cast<std::byte*>(memory.get()) + rank * bytes;
  };
  std::atomic<bool> is_stopped{false}, has_let_go{false};
  std::atomic<std::thread::id> mover;
  const PageTrap trap(values(owner), [&] {
    mover = std::this_thread::get_id();
    is_stopped = true;
    std::this_thread::sleep_for(stop);
    has_let_go = true;
  });
  on_ranks(3, [&](int rank, gyreComm_t comm, Complaints& complaints) {
    std::thread breaker;
    if (rank == owner)
      breaker = std::thread([&] {
        for (int i = 0; i < 10'000 && !is_stopped; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        (void)gyreCommAbort(comm);
      });
    const gyreResult_t result =
        gyreBroadcast(values(rank), values(rank), bytes, gyreUint8, 0, comm, nullptr);
    if (rank == owner) {
      complaints.expect(has_let_go, "the call returned while its buffer was in use");
      complaints.expect(result != gyreSuccess, "the call was not aborted");
      breaker.join();
    }
    if (rank == 1)
      complaints.expect(mover == std::this_thread::get_id(), "another rank did the move");
  });
}

}  // namespace stopped_thread_test
