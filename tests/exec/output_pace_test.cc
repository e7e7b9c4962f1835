// lib/exec/output_pace.h: which way large outputs are written, by how long both ways take.
#include "lib/exec/output_pace.h"

#include "tests/support/catch.h"

namespace output_pace_test {

using namespace gyre::exec;

namespace {

constexpr std::uint64_t bytes = 8 << 20;

struct WayCosts {
  std::uint64_t cached, past;  // ticks for 1,024 bytes
};

// Carries out so many calls. How many of them wrote past the cache.
int streamed_of(OutputPace& pace, int calls, const WayCosts& costs, int late = -1) {
  int streamed = 0;
  for (int i = 0; i < calls; ++i) {
    const bool streams = pace.begin_call();
    streamed += streams;
    const std::uint64_t pause = i == late ? 100'000'000 : 0;
    if (pace.is_timed())
      pace.took((streams ? costs.past : costs.cached) * bytes / 1024 + pause, bytes);
    pace.end_call();
  }
  return streamed;
}

}  // namespace

TEST_CASE("large outputs come to leave the faster way, whichever was expected", "[pace]") {
  constexpr int calls = 10'000, few = 100;
  for (const std::uint64_t size : {OutputPace::min_bytes, bytes, OutputPace::max_bytes}) {
    CAPTURE(size);
    OutputPace cached(size), past(size);
    CHECK(streamed_of(cached, calls, {100, 130}) < few);
    CHECK(streamed_of(past, calls, {130, 100}) > calls - few);
    // Both ways are tried now and then.
    CHECK(streamed_of(cached, calls, {100, 130}) > 0);
    CHECK(streamed_of(past, calls, {130, 100}) < calls);
  }
}

TEST_CASE("an output whose cache comes to be used by others is written the other way", "[pace]") {
  constexpr int settling = 5000, calls = 5000, few = 100;
  OutputPace pace(bytes);
  (void)streamed_of(pace, settling, {100, 200});
  (void)streamed_of(pace, settling, {200, 100});
  CHECK(streamed_of(pace, calls, {200, 100}) > calls - few);
  (void)streamed_of(pace, settling, {100, 200});
  CHECK(streamed_of(pace, calls, {100, 200}) < few);
}

TEST_CASE("one call in which the thread lost its processor changes no way of writing", "[pace]") {
  for (int late = 0; late < 300; ++late) {
    CAPTURE(late);
    OutputPace cached(bytes), past(bytes);
    (void)streamed_of(cached, 600, {100, 200});
    CHECK(streamed_of(cached, 600, {100, 200}, late) < 30);
    (void)streamed_of(past, 600, {200, 100});
    CHECK(streamed_of(past, 600, {200, 100}, late) > 570);
  }
}

TEST_CASE("small and very large outputs are not timed, and calls that fail change nothing",
          "[pace]") {
  OutputPace small(OutputPace::min_bytes - 1), large(OutputPace::max_bytes + 1);
  CHECK(streamed_of(small, 1000, {200, 100}) == 0);
  CHECK(streamed_of(large, 1000, {100, 200}) == 1000);
  OutputPace failing(bytes);
  const bool streams = failing.begin_call();
  for (int i = 0; i < 1000; ++i) CHECK(failing.begin_call() == streams);
}

TEST_CASE("outputs of a size have a pace of their own", "[pace]") {
  OutputPaces paces;
  CHECK(&paces.of(0) == &paces.of(OutputPace::min_bytes - 1));
  CHECK(&paces.of(OutputPace::min_bytes - 1) != &paces.of(OutputPace::min_bytes));
  CHECK(&paces.of(4 << 20) == &paces.of((8 << 20) - 1));
  CHECK(&paces.of(4 << 20) != &paces.of(8 << 20));
  CHECK(&paces.of(32 << 20) == &paces.of(UINT64_MAX));
  CHECK_FALSE(paces.of(0).begin_call());
  CHECK(paces.of(UINT64_MAX).begin_call());
}

}  // namespace output_pace_test
