// Random programs: seeds generate sequences over random communicator trees (splits, groups, several
// threads, messages, streams). Their results have to match a model. A program with a fault has to
// end in the right error on every rank. A failure prints the program and the command that runs it
// alone.
#include "tests/support/catch.h"
#include "tests/support/random_programs/program.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace programs_test {

using namespace gyre::tests;

namespace {

constexpr const char* tempers[] = {"legal", "refused", "broken", "silent"};

std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096 / (1 << 20);
}

void run_one(std::uint32_t seed, Temper temper) {
  const Program program = draw_program(seed, temper);
  const std::string wrong = run_program(program);
  const char* name = tempers[static_cast<int>(temper)];
  INFO(wrong << "\n"
             << shown(program) << "\nreplay: GYRE_SOCKET_IFNAME=lo programs_test --rng-seed "
             << seed << " 'replay: " << name << "'\nshrink: the same with 'shrink: " << name
             << "'");
  CHECK(wrong.empty());
}

// Seeds follow from Catch2's; descriptors, threads and memory are the same after a warm-up as at
// the end.
void run_many(Temper temper, int programs) {
  const auto start = std::chrono::steady_clock::now();
  const int warm_up = std::max(programs / 3, 1);
  std::ptrdiff_t descriptors = 0, threads = 0;
  double resident = 0;
  for (int i = 0; i < programs; ++i) {
    run_one(rng_seed() * 100'000 + static_cast<std::uint32_t>(i), temper);
    if (i + 1 == warm_up || i + 1 == programs) {
      const std::ptrdiff_t fds = entries("/proc/self/fd"), tasks = entries("/proc/self/task");
      const double mib = resident_mib();
      if (i + 1 == programs) {
        CHECK(fds <= descriptors + 4);
        CHECK(tasks <= threads);
        CHECK(mib <= resident * 1.2 + 64);
      }
      std::printf("%s %d: %td descriptors, %td threads, %.0f MiB\n",
                  tempers[static_cast<int>(temper)], i + 1, fds, tasks, mib);
      std::fflush(stdout);
      descriptors = fds, threads = tasks, resident = mib;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %.1f programs a second\n", tempers[static_cast<int>(temper)],
              programs / seconds);
}

void shrink(Temper temper) {
  const Program program = draw_program(rng_seed(), temper);
  const std::string wrong = run_program(program);
  if (wrong.empty()) return;
  const Program least = shrunk(program, 400);
  FAIL(run_program(least) << "\n" << shown(least));
}

}  // namespace

TEST_CASE("random programs end as their model says", "[programs]") { run_many(Temper::legal, 200); }

TEST_CASE("refused calls leave a random program as it was", "[programs][faults]") {
  run_many(Temper::refused, 60);
}

TEST_CASE("every member of a broken communicator is told why", "[programs][faults]") {
  run_many(Temper::broken, 24);
}

TEST_CASE("a member that does not call is an error for the others at the deadline",
          "[programs][faults]") {
  run_many(Temper::silent, 3);
}

TEST_CASE("10,000 random programs end as their model says", "[.soak]") {
  run_many(Temper::legal, 8500);
  run_many(Temper::refused, 1000);
  run_many(Temper::broken, 450);
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

}  // namespace programs_test
