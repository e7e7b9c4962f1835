// The cost of the records for tools: nanoseconds of processor time for each event of a flight. An
// operation of 8 bytes that waits for a peer as usual costs begin + end/soon on its way; the stamp
// is taken while it waits. `counter` and `clock` are the cost of one clock reading on this machine.
#include "lib/base/state_page.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

namespace gyre::bench {
namespace {

constexpr std::uint64_t short_bytes = 8;
constexpr std::uint64_t long_bytes = 1 << 20;

RankState claim() {
  static StatePage state_page;
  RankIdentity identity;
  identity.size = 2;
  return std::move(state_page.claim([] { return StatePage::Owner(); }, identity)).value();
}

FlightCall call(std::uint64_t bytes) {
  FlightCall one;
  one.sequence = 1;
  one.bytes = bytes;
  one.count = bytes;
  return one;
}

void begin(benchmark::State& state, std::uint64_t bytes) {
  RankState rank_state = claim();
  OpenFlightEntry flight;
  FlightCall one = call(bytes);
  for ([[maybe_unused]] auto _ : state) {
    ++one.sequence;
    benchmark::DoNotOptimize(rank_state.begin(flight, one));
  }
}

// Both events; the begin's own cost stands beside it.
void operation(benchmark::State& state, std::uint64_t bytes, bool stamped) {
  RankState rank_state = claim();
  OpenFlightEntry flight;
  FlightCall one = call(bytes);
  for ([[maybe_unused]] auto _ : state) {
    ++one.sequence;
    rank_state.begin(flight, one);
    if (stamped) rank_state.stamp(flight);
    rank_state.end(flight, 0);
    benchmark::ClobberMemory();
  }
}

void tell(benchmark::State& state, bool changes) {
  RankState rank_state = claim();
  WaitRecord wait;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::data;
  for ([[maybe_unused]] auto _ : state) {
    if (changes) ++wait.chunk;
    rank_state.tell_wait(WaitLane::collective, wait);
    benchmark::ClobberMemory();
  }
}

void counter(benchmark::State& state) {
  const TickSource source = tick_source();
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(read_ticks(source));
}

void clock_reading(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(SystemClock::read());
}

void coarse_reading(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(read_coarse_ns());
}

void add_all() {
  const auto add = [](const char* name, auto body) {
    // Short, and often: the least of many is what undisturbed processors need.
    benchmark::RegisterBenchmark(name, body)
        ->MinTime(0.02)
        ->Repetitions(40)
        ->ComputeStatistics(
            "least",
            [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); })
        ->ReportAggregatesOnly(true);
  };
  add("counter", counter);
  add("clock", clock_reading);
  add("clock/coarse", coarse_reading);
  add("begin/8B", [](benchmark::State& s) { begin(s, short_bytes); });
  add("begin+end/late/8B", [](benchmark::State& s) { operation(s, short_bytes, false); });
  add("begin+stamp+end/soon/8B", [](benchmark::State& s) { operation(s, short_bytes, true); });
  add("begin/1MiB", [](benchmark::State& s) { begin(s, long_bytes); });
  add("begin+end/exact/1MiB", [](benchmark::State& s) { operation(s, long_bytes, false); });
  add("wait/same", [](benchmark::State& s) { tell(s, false); });
  add("wait/changed", [](benchmark::State& s) { tell(s, true); });
}

}  // namespace
}  // namespace gyre::bench

int main(int count, char** arguments) {
  gyre::bench::add_all();
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
