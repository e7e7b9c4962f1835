// Random programs whose ranks are processes, or threads of several. They do what programs_test does
// with the threads of one process; in addition, callers drive some streams, ranks leave before the
// end, and other threads abort. A failure prints the program and the command that runs it alone.
// The test process forks, so it has one thread and no communicator.
#include "tests/support/catch.h"
#include "tests/support/random_programs/program.h"

#include <chrono>
#include <cstdio>

namespace program_processes_test {

using namespace gyre::tests;

namespace {

constexpr const char* tempers[] = {"legal", "refused", "broken", "silent"};

void run_one(std::uint32_t seed, Temper temper) {
  const Program program = draw_program(seed, temper, Housing::processes);
  const std::string wrong = run_in_processes(program);
  const char* name = tempers[static_cast<int>(temper)];
  INFO(wrong << "\n"
             << shown(program)
             << "\nreplay: GYRE_SOCKET_IFNAME=lo program_processes_test --rng-seed " << seed
             << " 'replay: " << name << "'\nshrink: the same with 'shrink: " << name << "'");
  CHECK(wrong.empty());
}

// Seeds follow from Catch2's.
void run_many(Temper temper, int programs) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < programs; ++i)
    run_one(rng_seed() * 100'000 + static_cast<std::uint32_t>(i), temper);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %.1f programs a second\n", tempers[static_cast<int>(temper)],
              programs / seconds);
  std::fflush(stdout);
}

void shrink(Temper temper) {
  const Program program = draw_program(rng_seed(), temper, Housing::processes);
  if (run_in_processes(program).empty()) return;
  const Program least = shrunk(program, 200, run_in_processes);
  FAIL(run_in_processes(least) << "\n" << shown(least));
}

}  // namespace

TEST_CASE("random programs of processes end as their model says", "[programs]") {
  run_many(Temper::legal, 200);
}

TEST_CASE("refused calls leave a random program of processes as it was", "[programs][faults]") {
  run_many(Temper::refused, 40);
}

TEST_CASE("every process of a broken communicator is told why", "[programs][faults]") {
  run_many(Temper::broken, 40);
}

TEST_CASE("a process that does not call is an error for the others at the deadline",
          "[programs][faults]") {
  run_many(Temper::silent, 2);
}

TEST_CASE("10,000 random programs of processes end as their model says", "[.soak]") {
  run_many(Temper::legal, 8000);
  run_many(Temper::refused, 1000);
  run_many(Temper::broken, 950);
  run_many(Temper::silent, 50);
}

TEST_CASE("replay: legal", "[.replay]") { run_one(rng_seed(), Temper::legal); }
TEST_CASE("replay: refused", "[.replay]") { run_one(rng_seed(), Temper::refused); }
TEST_CASE("replay: broken", "[.replay]") { run_one(rng_seed(), Temper::broken); }
TEST_CASE("replay: silent", "[.replay]") { run_one(rng_seed(), Temper::silent); }
TEST_CASE("shrink: legal", "[.replay]") { shrink(Temper::legal); }
TEST_CASE("shrink: refused", "[.replay]") { shrink(Temper::refused); }
TEST_CASE("shrink: broken", "[.replay]") { shrink(Temper::broken); }
TEST_CASE("shrink: silent", "[.replay]") { shrink(Temper::silent); }

}  // namespace program_processes_test
